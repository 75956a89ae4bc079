"""The layers of NASViT: MBConvs, and transformer layers with mixed heads, convolved values and switchable scaling."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...elastic import (
    Axis,
    DropPath,
    ElasticBatchNorm2d,
    ElasticConv2d,
    ElasticDepthwiseConv2d,
    ElasticImageNorm,
    ElasticLinear,
    Windows,
    WindowTables,
    prefix,
)
from ...elastic.scaling import INIT
from ...errors import ArchError
from .arch import (
    HEAD_DIM,
    VALUE_RATIO,
    ConvChoices,
    Size,
    TransformerChoices,
    hidden_width,
    squeezed_width,
    window_side,
)

COLUMNS = 8
"""Number of scaling vectors per depth in the published code; the number of tokens modulo 8 selects one."""

_VALUE_DIM = VALUE_RATIO * HEAD_DIM
_PARTS = (HEAD_DIM, HEAD_DIM, _VALUE_DIM)

ScaleSlot = tuple[int, int]
"""(depth of the stage, tokens modulo 8): key of a published scaling vector."""


class SqueezeExcite(nn.Module):
    """Weigh channels by a gate that sees their means; ReLU inside, a hard sigmoid outside.

    Args:
        hidden: Axis of the channels.
        squeezed: Axis of the fewer channels inside.
    """

    def __init__(self, hidden: Axis, squeezed: Axis) -> None:
        super().__init__()
        self.reduce = ElasticConv2d(hidden, squeezed, 1)
        self.expand = ElasticConv2d(squeezed, hidden, 1)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) → the same."""
        return x * F.hardsigmoid(self.expand(F.relu(self.reduce(x.mean((2, 3), keepdim=True)))))


class MBConv(nn.Module):
    """1 × 1 expansion, depth-wise convolution, 1 × 1 projection, each with a batch norm, and always a residual.

    If the size is halved, the residual is the mean over 2 × 2 pixels; an odd side gets a row of zeros at both ends, and
    these count. If the width changes, the residual passes a 1 × 1 convolution.

    Args:
        inputs: Axis of the input channels.
        outputs: Axis of the output channels.
        choices: The largest choices of the stage.
        stride: Stride of the depth-wise convolution, 1 or 2.
        resized: Whether the width may change.
        drop_path: Chance that a sample skips the block.
    """

    def __init__(
        self, inputs: Axis, outputs: Axis, choices: ConvChoices, stride: int, resized: bool, drop_path: float
    ) -> None:
        super().__init__()
        self.stride, self.resized = stride, resized
        # Without expansion, the hidden channels are the input channels.
        self.hidden = Axis(hidden_width(inputs.most, choices.expand_ratio)) if choices.expand_ratio != 1 else inputs
        if choices.expand_ratio != 1:
            self.expand = ElasticConv2d(inputs, self.hidden, 1, bias=False)
            self.expand_bn = ElasticBatchNorm2d(self.hidden)
        self.depthwise = ElasticDepthwiseConv2d(self.hidden, choices.kernel_size, stride, bias=False)
        self.depthwise_bn = ElasticBatchNorm2d(self.hidden)
        self.squeezed = Axis(squeezed_width(self.hidden.most)) if choices.se else None
        self.se = nn.Identity() if self.squeezed is None else SqueezeExcite(self.hidden, self.squeezed)
        self.project = ElasticConv2d(self.hidden, outputs, 1, bias=False)
        self.project_bn = ElasticBatchNorm2d(outputs)
        self.shortcut = ElasticConv2d(inputs, outputs, 1, bias=False) if resized else None
        self.drop_path = DropPath(drop_path)

    def widths(self, channels: int, choices: ConvChoices) -> Iterator[tuple[Axis, int]]:
        """Yield the axis of the hidden channels and its width, given the input channels."""
        hidden = hidden_width(channels, choices.expand_ratio)
        if choices.expand_ratio != 1:
            yield self.hidden, hidden
        if self.squeezed is not None:
            yield self.squeezed, squeezed_width(hidden)

    def forward(self, x: Tensor, choices: ConvChoices) -> Tensor:
        """(B, C, H, W) → (B, C', H / stride, W / stride), sides rounded up."""
        out = F.silu(self.expand_bn(self.expand(x))) if hasattr(self, 'expand') else x
        out = self.se(F.silu(self.depthwise_bn(self.depthwise(out, choices.kernel_size))))
        out = self.drop_path(self.project_bn(self.project(out)))
        if self.stride == 2:
            x = F.avg_pool2d(x, 2, padding=(x.shape[2] % 2, x.shape[3] % 2))
        return out + (x if self.shortcut is None or x.shape[1] == out.shape[1] else self.shortcut(x))


class PublishedScale(nn.Module):
    """Scaling as in the published code: one vector per depth of the stage and number of tokens modulo 8.

    A branch is multiplied by the first entries of the vector, and by 8 / width. The number of tokens is that at the
    architecture's resolution, whatever the size of the image.

    Args:
        slots: The slot of each vector.
        width: Largest width.
    """

    def __init__(self, slots: Sequence[ScaleSlot], width: int) -> None:
        super().__init__()
        names = [_slot_name(*slot) for slot in slots]
        self.vectors = nn.ParameterDict([(name, nn.Parameter(torch.full((width,), INIT))) for name in names])

    def check_slot(self, path: str, slot: ScaleSlot) -> None:
        """Check that there is a vector for a slot.

        Raises:
            ArchError: There is none.
        """
        if _slot_name(*slot) not in self.vectors:
            raise ArchError(
                f'{path}.blocks has {slot[0]} entries on maps of {slot[1]} tokens modulo {COLUMNS}; there are '
                f'scaling vectors for {", ".join(self.vectors)}'
            )

    def forward(self, x: Tensor, slot: ScaleSlot) -> Tensor:
        """Scale the last dimension of (…, width)."""
        width = x.shape[-1]
        return x * (prefix(self.vectors[_slot_name(*slot)], width) * (COLUMNS / width))


def _slot_name(depth: int, column: int) -> str:
    return f'{depth}-{column}'


class NASViTAttention(nn.Module):
    """Multi-head attention: talking heads, values four times as wide and convolved, relative positions (App. B.1).

    Rows of ``qkv`` keep queries, keys and values of a head together, heads one after another.

    Args:
        width: Axis of the tokens.
        heads: Axis of the heads.
        reach: Number of rows and columns for which relative positions are stored.
        shifted: Whether windows are shifted by half their side.
        window_size: Side of windows; None for those of an architecture.
        official: Whether tokens of shifted windows attend to unrelated neighbours, as in the published code.
    """

    def __init__(
        self, width: Axis, heads: Axis, reach: int, shifted: bool, window_size: int | None, official: bool
    ) -> None:
        super().__init__()
        self.qkv = ElasticLinear(width, heads.times(sum(_PARTS)))
        self.value_conv = ElasticDepthwiseConv2d(heads.times(_VALUE_DIM), 3, bias=False)
        self.mix_scores = ElasticLinear(heads, heads)
        self.mix_weights = ElasticLinear(heads, heads)
        self.proj = ElasticLinear(heads.times(_VALUE_DIM), width)
        self.table = nn.Parameter(torch.zeros(heads.most, 2 * reach - 1, 2 * reach - 1))
        self.shifted, self.window_size, self.official = shifted, window_size, official

    def forward(self, x: Tensor, size: Size, reach: int, num_windows: int, common: WindowTables) -> Tensor:
        """(B, h·w, C) → (B, h·w, C).

        Args:
            x: The tokens.
            size: (h, w).
            reach: Number of rows and columns for which relative positions are active.
            num_windows: Number of windows of the map in an architecture.
            common: Lookups that the layers of a pass share.
        """
        heads = x.shape[-1] // HEAD_DIM
        maps = self.qkv(x).unflatten(1, size).unflatten(3, (heads, sum(_PARTS)))
        qk, v = maps.split((2 * HEAD_DIM, _VALUE_DIM), -1)
        side = window_side(size, num_windows, self.window_size)
        if side is None:
            out = self._attend(qk, self._convolve(v), None, reach, common).transpose(1, 2).flatten(2)
            return self.proj(F.silu(out))
        windows = Windows.of(*size, side, self.shifted)
        if self.official:  # the convolution stops at window borders, too
            qk, v = _cut(windows, qk), self._convolve(_cut(windows, v))
        else:
            qk, v = _cut(windows, qk), _cut(windows, self._convolve(v))
        out = self._attend(qk, v, self._mask(windows, common, x.dtype), reach, common)
        return self.proj(F.silu(windows.join(out.unflatten(0, (len(x), math.prod(windows.grid)))).flatten(1, 2)))

    def _convolve(self, v: Tensor) -> Tensor:
        """Convolve the values of maps (b, h, w, heads, values)."""
        return self.value_conv(v.flatten(3).permute(0, 3, 1, 2)).permute(0, 2, 3, 1).unflatten(3, (-1, _VALUE_DIM))

    def _mask(self, windows: Windows, common: WindowTables, dtype: torch.dtype) -> Tensor | None:
        """Return the mask to add to scores, (windows, 1, n, n); the published code does not mask a shift alone."""
        rows, columns = (count * windows.size for count in windows.grid)
        if self.official and (rows, columns) == (windows.height, windows.width):
            return None
        return common.mask(windows, dtype)

    def _attend(self, qk: Tensor, v: Tensor, mask: Tensor | None, reach: int, common: WindowTables) -> Tensor:
        """Attend in maps: queries, keys and values (b, h, w, heads, …) → (b, heads, h·w, values of a head)."""
        height, width = v.shape[1:3]
        q, k, v = (part.flatten(1, 2).transpose(1, 2) for part in (*qk.split(HEAD_DIM, -1), v))
        scores = (q * HEAD_DIM**-0.5) @ k.mT + self.bias(height, width, q.shape[1], reach, common)
        scores = _mix(self.mix_scores, scores)
        if mask is not None:
            scores = (scores.unflatten(0, (-1, len(mask))) + mask).flatten(0, 1)
        weights = _mix(self.mix_weights, scores.softmax(-1))
        if mask is not None:  # mixing heads gives weight to masked tokens
            weights = (weights.unflatten(0, (-1, len(mask))) * (mask == 0)).flatten(0, 1)
        return weights @ v

    def bias(self, height: int, width: int, heads: int, reach: int, common: WindowTables) -> Tensor:
        """Return the bias (heads, tokens, tokens) of relative positions on a map."""
        table = prefix(self.table, heads, 2 * reach - 1, 2 * reach - 1).flatten(1)
        return table.index_select(1, common.entries(height, width, reach)).unflatten(1, (height * width, -1))


def _cut(windows: Windows, maps: Tensor) -> Tensor:
    """Cut maps (B, h, w, heads, d) into windows (B · windows, side, side, heads, d)."""
    entered = windows.enter(maps.flatten(3))
    parts = windows.split(entered[..., None, None, :])[0, :, :, 0]  # (B, windows, tokens, heads · d)
    return parts.flatten(0, 1).unflatten(1, (windows.size, windows.size)).unflatten(3, maps.shape[3:])


def _mix(layer: ElasticLinear, scores: Tensor) -> Tensor:
    """Apply a linear layer over the heads of (b, heads, n, n)."""
    heads = scores.shape[1]
    mixed = layer.cut(heads) @ scores.flatten(2) + prefix(layer.bias, heads)[:, None]
    return mixed.unflatten(2, scores.shape[2:])


class MLP(nn.Module):
    """Two linear layers with a swish between them.

    Args:
        width: Axis of the tokens.
        hidden: Axis of the hidden units.
    """

    def __init__(self, width: Axis, hidden: Axis) -> None:
        super().__init__()
        self.fc1 = ElasticLinear(width, hidden)
        self.fc2 = ElasticLinear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        """(B, N, C) → (B, N, C)."""
        return self.fc2(F.silu(self.fc1(x)))


class TransformerLayer(nn.Module):
    """Attention and two MLPs, each behind its own norm and with a scaled residual; both MLPs share a scaling.

    Args:
        width: Axis of the tokens.
        choices: The largest choices of the stage.
        reach: Number of rows and columns for which relative positions are stored.
        scales: Scaling of the two kinds of branches; identities for none.
        shifted: Whether windows are shifted.
        window_size: Side of windows; None for those of an architecture.
        official: Whether to work as the published code does.
        drop_path: Chance that a sample skips a branch.
    """

    def __init__(
        self,
        width: Axis,
        choices: TransformerChoices,
        reach: int,
        scales: tuple[nn.Module, nn.Module],
        shifted: bool,
        window_size: int | None,
        official: bool,
        drop_path: float,
    ) -> None:
        super().__init__()
        self.heads = Axis(width.most // HEAD_DIM)
        self.hidden = tuple(Axis(choices.mlp_ratio * width.most, sortable=True) for _ in range(2))
        self.norm1 = ElasticImageNorm(width)
        self.attn = NASViTAttention(width, self.heads, reach, shifted, window_size, official)
        self.scale_attn = scales[0]
        self.norm2 = ElasticImageNorm(width)
        self.mlp1 = MLP(width, self.hidden[0])
        self.norm3 = ElasticImageNorm(width)
        self.mlp2 = MLP(width, self.hidden[1])
        self.scale_mlp = scales[1]
        self.drop_path = DropPath(drop_path)

    def widths(self, choices: TransformerChoices) -> Iterator[tuple[Axis, int]]:
        """Yield the axes of heads and hidden units, and their widths."""
        yield self.heads, choices.width // HEAD_DIM
        for hidden in self.hidden:
            yield hidden, choices.mlp_ratio * choices.width

    def forward(
        self, x: Tensor, size: Size, choices: TransformerChoices, reach: int, slot: ScaleSlot, common: WindowTables
    ) -> Tensor:
        """(B, h·w, C) → (B, h·w, C); arguments as of the attention, and the slot of the published scaling vectors."""
        which = (slot,) if isinstance(self.scale_attn, PublishedScale) else ()
        out = self.attn(self.norm1(x), size, reach, choices.num_windows, common)
        x = x + self.drop_path(self.scale_attn(out, *which))
        x = x + self.drop_path(self.scale_mlp(self.mlp1(self.norm2(x)), *which))
        return x + self.drop_path(self.scale_mlp(self.mlp2(self.norm3(x)), *which))


class MBPool(nn.Module):
    """The efficient last stage: 1 × 1 convolution, mean over the image, 1 × 1 convolution (MobileNetV3).

    Args:
        inputs: Axis of the last stage.
        hidden: Axis of the map that is averaged.
        outputs: Axis of the output.
    """

    def __init__(self, inputs: Axis, hidden: Axis, outputs: Axis) -> None:
        super().__init__()
        self.hidden, self.outputs = hidden, outputs
        self.expand = ElasticConv2d(inputs, hidden, 1, bias=False)
        self.bn = ElasticBatchNorm2d(hidden)
        self.mix = ElasticConv2d(hidden, outputs, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) → (B, C', 1, 1)."""
        pooled = F.silu(self.bn(self.expand(x))).mean((2, 3), keepdim=True)
        return F.silu(self.mix(pooled))
