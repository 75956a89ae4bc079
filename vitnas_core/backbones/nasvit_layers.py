"""Transformer layers of NASViT: attention with mixed heads and convolved values, two MLPs, switchable scaling."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..costs.nasvit import HEAD_DIM, VALUE_RATIO, Size, window_side
from ..elastic import (
    DropPath,
    ElasticDepthwiseConv2d,
    ElasticImageNorm,
    ElasticLinear,
    Reorder,
    SwitchableScale,
    Windows,
    WindowTables,
    order_hidden,
    prefix,
)
from ..elastic.scaling import INIT
from ..errors import ArchError

COLUMNS = 8
"""Scaling vectors that the published code keeps for a depth; it takes the one at the number of tokens modulo 8."""

_VALUE_DIM = VALUE_RATIO * HEAD_DIM
_PARTS = (HEAD_DIM, HEAD_DIM, _VALUE_DIM)


class PublishedScale(SwitchableScale):
    """Scaling as in the published code: a vector for each depth of the stage and number of tokens modulo 8.

    A branch is multiplied by the first entries, and by 8 / width. The number of tokens is that at the architecture's
    resolution, whatever the image.

    Args:
        slots: (depth of the stage, column) of each vector.
        width: Largest width.
    """

    def __init__(self, slots: list[tuple[int, int]], width: int) -> None:
        super().__init__(())
        for slot in slots:
            self.vectors[_slot_name(*slot)] = nn.Parameter(torch.full((width,), INIT))
        self.slot = slots[-1]
        """The active one."""

    def forward(self, x: Tensor) -> Tensor:
        """Scale the last axis of (…, width)."""
        width = x.shape[-1]
        return x * (prefix(self.vectors[_slot_name(*self.slot)], width) * (COLUMNS / width))


def _slot_name(depth: int, column: int) -> str:
    return f'{depth}-{column}'


class Attention(nn.Module):
    """Multi-head attention: talking heads, values four times as wide and convolved, relative positions (App. B.1).

    Rows of ``qkv`` keep queries, keys and values of a head together, heads one after another.

    Args:
        width: Largest width of the tokens.
        reach: For how many rows and columns relative positions are stored.
        shifted: Whether windows are shifted by half their side.
        official: Whether shifted windows attend to what the shift puts beside them, as in the published code.
    """

    def __init__(self, width: int, reach: int, shifted: bool, official: bool) -> None:
        super().__init__()
        heads = width // HEAD_DIM
        self.qkv = ElasticLinear(width, heads * sum(_PARTS))
        self.value_conv = ElasticDepthwiseConv2d(heads * _VALUE_DIM, 3, bias=False)
        self.mix_scores = ElasticLinear(heads, heads)
        self.mix_weights = ElasticLinear(heads, heads)
        self.proj = ElasticLinear(heads * _VALUE_DIM, width)
        self.table = nn.Parameter(torch.zeros(heads, 2 * reach - 1, 2 * reach - 1))
        self.shifted, self.official = shifted, official
        self.reach = reach
        """The active number of rows and columns of relative positions."""
        self.num_windows = 1
        self.window_size: int | None = None

    def set_choice(self, width: int, reach: int, num_windows: int, window_size: int | None) -> None:
        """Activate a width, relative positions and windows."""
        heads = width // HEAD_DIM
        self.qkv.width, self.proj.width = heads * sum(_PARTS), width
        self.mix_scores.width = self.mix_weights.width = heads
        self.reach, self.num_windows, self.window_size = reach, num_windows, window_size

    def forward(self, x: Tensor, size: Size, common: WindowTables) -> Tensor:
        """(B, h·w, C) and (h, w) → (B, h·w, C)."""
        heads = x.shape[-1] // HEAD_DIM
        maps = self.qkv(x).unflatten(1, size).unflatten(3, (heads, sum(_PARTS)))
        qk, v = maps.split((2 * HEAD_DIM, _VALUE_DIM), -1)
        side = window_side(size, self.num_windows, self.window_size)
        if side is None:
            out = self._attend(qk, self._convolve(v), None, common).transpose(1, 2).flatten(2)
            return self.proj(F.silu(out))
        windows = Windows.of(*size, side, self.shifted)
        if self.official:  # windows end the convolution, too
            qk, v = _cut(windows, qk), self._convolve(_cut(windows, v))
        else:
            qk, v = _cut(windows, qk), _cut(windows, self._convolve(v))
        out = self._attend(qk, v, self._mask(windows, common, x.dtype), common)
        return self.proj(F.silu(windows.join(out.unflatten(0, (len(x), math.prod(windows.grid)))).flatten(1, 2)))

    def _convolve(self, v: Tensor) -> Tensor:
        """Convolve the values of maps (b, h, w, heads, values)."""
        return self.value_conv(v.flatten(3).permute(0, 3, 1, 2)).permute(0, 2, 3, 1).unflatten(3, (-1, _VALUE_DIM))

    def _mask(self, windows: Windows, common: WindowTables, dtype: torch.dtype) -> Tensor | None:
        """What is added to the scores of windows, (windows, 1, n, n); a shift alone is not masked officially."""
        rows, columns = (count * windows.size for count in windows.grid)
        if self.official and (rows, columns) == (windows.height, windows.width):
            return None
        return common.mask(windows, dtype)

    def _attend(self, qk: Tensor, v: Tensor, mask: Tensor | None, common: WindowTables) -> Tensor:
        """Queries, keys and values of maps, (b, h, w, heads, …) → (b, heads, h·w, values of a head)."""
        height, width = v.shape[1:3]
        q, k, v = (part.flatten(1, 2).transpose(1, 2) for part in (*qk.split(HEAD_DIM, -1), v))
        scores = (q * HEAD_DIM**-0.5) @ k.mT + self._positions(height, width, q.shape[1], common)
        scores = _mix(self.mix_scores, scores)
        if mask is not None:
            scores = (scores.unflatten(0, (-1, len(mask))) + mask).flatten(0, 1)
        weights = _mix(self.mix_weights, scores.softmax(-1))
        if mask is not None:  # the mixing gives weights to what has none
            weights = (weights.unflatten(0, (-1, len(mask))) * (mask == 0)).flatten(0, 1)
        return weights @ v

    def _positions(self, height: int, width: int, heads: int, common: WindowTables) -> Tensor:
        """The bias (heads, tokens, tokens) of relative positions on a map."""
        side = 2 * self.reach - 1
        table = prefix(self.table, heads, side, side).flatten(1)
        return table.index_select(1, common.entries(height, width, self.reach)).unflatten(1, (height * width, -1))


def _cut(windows: Windows, maps: Tensor) -> Tensor:
    """Maps (B, h, w, heads, d) → those of windows, (B · windows, side, side, heads, d)."""
    entered = windows.enter(maps.flatten(3))
    parts = windows.split(entered[..., None, None, :])[0, :, :, 0]  # (B, windows, tokens, heads · d)
    return parts.flatten(0, 1).unflatten(1, (windows.size, windows.size)).unflatten(3, maps.shape[3:])


def _mix(layer: ElasticLinear, scores: Tensor) -> Tensor:
    """A linear layer over the heads of (b, heads, n, n)."""
    heads = scores.shape[1]
    mixed = layer.cut(heads) @ scores.flatten(2) + prefix(layer.bias, heads)[:, None]
    return mixed.unflatten(2, scores.shape[2:])


class MLP(nn.Module):
    """Two linear layers with a swish between them.

    Args:
        width: Largest width of the tokens.
        ratio: Largest ratio of hidden to input channels.
    """

    def __init__(self, width: int, ratio: int) -> None:
        super().__init__()
        self.fc1 = ElasticLinear(width, ratio * width)
        self.fc2 = ElasticLinear(ratio * width, width)

    def set_choice(self, width: int, ratio: int) -> None:
        """Activate a width and a ratio."""
        self.fc1.width, self.fc2.width = ratio * width, width

    def forward(self, x: Tensor) -> Tensor:
        """(B, N, C) → (B, N, C)."""
        return self.fc2(F.silu(self.fc1(x)))


class TransformerLayer(nn.Module):
    """Attention and two MLPs, each behind a norm of its own and with a scaled residual; both MLPs share a scaling.

    Args:
        width: Largest width.
        mlp_ratio: Largest ratio of hidden to input channels of the MLPs.
        reach: For how many rows and columns relative positions are stored.
        scales: What scales the two kinds of branches; an identity where nothing does.
        shifted: Whether windows are shifted.
        official: As in the published code.
        drop_path: Chance that a sample skips a branch.
    """

    def __init__(
        self,
        width: int,
        mlp_ratio: int,
        reach: int,
        scales: tuple[nn.Module, nn.Module],
        shifted: bool,
        official: bool,
        drop_path: float,
    ) -> None:
        super().__init__()
        self.norm1 = ElasticImageNorm(width)
        self.attn = Attention(width, reach, shifted, official)
        self.scale_attn = scales[0]
        self.norm2 = ElasticImageNorm(width)
        self.mlp1 = MLP(width, mlp_ratio)
        self.norm3 = ElasticImageNorm(width)
        self.mlp2 = MLP(width, mlp_ratio)
        self.scale_mlp = scales[1]
        self.drop_path = DropPath(drop_path)

    def importance_orders(self) -> list[Reorder]:
        """New orders of hidden units; heads share their norms and tables with others and stay."""
        return order_hidden(self.mlp1.fc1, self.mlp1.fc2) + order_hidden(self.mlp2.fc1, self.mlp2.fc2)

    def check_scale(self, path: str, width: int, slot: tuple[int, int]) -> None:
        """Check that a width, or a slot of the published code, has scaling vectors.

        Raises:
            ArchError: It has none.
        """
        scale = self.scale_mlp
        SwitchableScale.check(scale, f'{path}.width', width)
        if isinstance(scale, PublishedScale) and _slot_name(*slot) not in scale.vectors:
            raise ArchError(
                f'{path}.blocks has {slot[0]} entries on maps of {slot[1]} tokens modulo {COLUMNS}; scaling vectors '
                f'are there for {", ".join(scale.vectors)}'
            )

    def set_slot(self, slot: tuple[int, int]) -> None:
        """Activate the scaling vectors of the published code."""
        for scale in (self.scale_attn, self.scale_mlp):
            if isinstance(scale, PublishedScale):
                scale.slot = slot

    def forward(self, x: Tensor, size: Size, common: WindowTables) -> Tensor:
        """(B, h·w, C) and (h, w) → (B, h·w, C)."""
        x = x + self.drop_path(self.scale_attn(self.attn(self.norm1(x), size, common)))
        x = x + self.drop_path(self.scale_mlp(self.mlp1(self.norm2(x))))
        return x + self.drop_path(self.scale_mlp(self.mlp2(self.norm3(x))))
