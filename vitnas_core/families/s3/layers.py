"""Layers and stages of S3."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...backbones.block import PreNormBlock
from ...elastic import (
    Axis,
    ElasticConv2d,
    ElasticLayerNorm,
    ElasticLinear,
    RelativeBias,
    Windows,
    WindowTables,
    attend,
    pad_to,
)
from .arch import HEAD_DIM


class WindowAttention(nn.Module):
    """Multi-head self-attention inside windows, with a bias for relative positions.

    Rows of ``qkv`` keep q, k and v of a head together, heads one after another. So any number of heads is a prefix. The
    offsets of a smaller window are a prefix of the bias table, too.

    Args:
        embed: Axis of the tokens.
        heads: Axis of the heads.
        sizes: Window sizes with a bias table.
        side: Side of the map to which windows are clamped for good.
        shifted: Whether windows are shifted by half their size if the map is larger than they are.
        shared: Whether all window sizes share one bias table; otherwise each has its own.
        drop: Dropout of the attention weights.
    """

    def __init__(
        self, embed: Axis, heads: Axis, sizes: Sequence[int], side: int, shifted: bool, shared: bool, drop: float
    ) -> None:
        super().__init__()
        self.side, self.shifted, self.drop = side, shifted, drop
        self.qkv = ElasticLinear(embed, heads.times(3 * HEAD_DIM), normed=True)
        self.bias = RelativeBias(sizes, heads, shared)
        self.proj = ElasticLinear(heads.times(HEAD_DIM), embed)

    def serves(self, size: int) -> bool:
        """Return whether there is a table for a window size."""
        return self.bias.serves(min(size, self.side))

    def forward(self, x: Tensor, size: int | Sequence[int], common: WindowTables) -> Tensor:
        """(B, H, W, E) → (B, H, W, E), in windows of one size, or of one size per sample."""
        if isinstance(size, int):
            return self.proj(self._attend(x, size, common))
        groups: dict[int, list[int]] = {}
        for row, own in enumerate(size):
            groups.setdefault(own, []).append(row)
        indices = [torch.tensor(rows, device=x.device) for rows in groups.values()]
        found = [self._attend(x[rows], own, common) for own, rows in zip(groups, indices)]
        return self.proj(torch.cat(found)[torch.cat(indices).argsort()])

    def _attend(self, x: Tensor, size: int, common: WindowTables) -> Tensor:
        """Run attention on (B, H, W, E); return the output of the heads, (B, H, W, heads · 32)."""
        size = min(size, self.side)
        windows = Windows.of(x.shape[1], x.shape[2], size, self.shifted)
        qkv = self.qkv(windows.enter(x))
        heads = qkv.shape[-1] // (3 * HEAD_DIM)
        qkv = windows.split(qkv.unflatten(-1, (heads, 3, HEAD_DIM)))  # (3, B, windows, heads, tokens, 32)
        bias = self.bias(size, windows, heads, common)
        mask = common.mask(windows, bias.dtype)
        # Dimensions are folded so that the bias broadcasts: (B · windows, heads, …), or (B, windows · heads, …) if it
        # differs between windows. It never grows with the batch.
        bias = bias if mask is None else (bias + mask).flatten(0, 1)
        q, k, v = (qkv.flatten(1, 2) if mask is None else qkv.flatten(2, 3)).unbind(0)
        out = attend(q, k, v, self.drop if self.training else 0.0, HEAD_DIM**-0.5, bias)
        return windows.join(out.view(qkv.shape[1:]))


class S3Block(PreNormBlock):
    """A pre-norm transformer block with attention in windows of a size, or of one size per sample."""

    attention_type = WindowAttention
    attn: WindowAttention


class PatchEmbedding(nn.Module):
    """Turn patches into tokens: a convolution without overlap, and a norm.

    Args:
        embed: Axis of the tokens.
        patch_size: Side of a patch.
    """

    def __init__(self, embed: Axis, patch_size: int) -> None:
        super().__init__()
        self.proj = ElasticConv2d(3, embed, patch_size, patch_size)
        self.norm = ElasticLayerNorm(embed)

    def forward(self, x: Tensor) -> Tensor:
        """(B, 3, H, W), padded to whole patches → (B, H', W', E)."""
        return self.norm(self.proj(pad_to(x, self.proj.stride[0])).permute(0, 2, 3, 1))


class PatchMerging(nn.Module):
    """Turn each 2 × 2 cell into one token: a norm over its four tokens together, and a linear layer.

    The four values of a channel are stored together (row by row). So the first channels of all four tokens are the
    first inputs. The published layout has four groups of all channels, column by column.

    Args:
        embed: Axis of the tokens.
        out: Axis of the tokens of the next stage.
    """

    def __init__(self, embed: Axis, out: Axis) -> None:
        super().__init__()
        cells = embed.times(4)
        self.norm = ElasticLayerNorm(cells)
        self.reduction = ElasticLinear(cells, out, bias=False, normed=True)

    def forward(self, x: Tensor) -> Tensor:
        """(B, H, W, E), padded to even sides → (B, H / 2, W / 2, out)."""
        if x.shape[1] % 2 or x.shape[2] % 2:
            x = F.pad(x, (0, 0, 0, x.shape[2] % 2, 0, x.shape[1] % 2))
        cells = x.unflatten(2, (-1, 2)).unflatten(1, (-1, 2)).permute(0, 1, 3, 2, 4, 5).flatten(3, 4)
        # Two copies, tokens to cells and cells to channels, take less than half the time of one that does both.
        return self.reduction(self.norm(cells.transpose(3, 4).flatten(3)))


class S3Stage(nn.Module):
    """The blocks of one width, and the merging before them.

    Args:
        merging: The merging before the blocks; the first stage has none.
        blocks: The blocks.
    """

    def __init__(self, merging: PatchMerging | None, blocks: Sequence[S3Block]) -> None:
        super().__init__()
        self.merging = merging
        self.blocks = nn.ModuleList(blocks)

    @property
    def items(self) -> list[S3Block]:
        """The blocks."""
        return cast('list[S3Block]', list(self.blocks))
