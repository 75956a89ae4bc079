"""Layers of ViTAS's blocks; any number of heads divides the active width of the attention."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import cast

import torch.nn.functional as F
from torch import Tensor, nn

from ...elastic import (
    Axis,
    DropPath,
    ElasticConv2d,
    ElasticDepthwiseConv2d,
    ElasticLayerNorm,
    ElasticLinear,
    Windows,
    WindowTables,
    attend,
    pad_to,
)
from ...errors import ArchError
from .arch import PEG_SIDE, BlockChoices, window_of


class Heads(nn.Module):
    """Base class of all kinds of attention except the published one.

    Any number of heads divides the active channels evenly. So the heads group channels but do not change their number
    (ViTAS, A.2).

    Args:
        embed: Axis of the tokens.
        inner: Common axis of queries, of keys and of values.
        drop: Dropout of the attention weights.
    """

    def __init__(self, embed: Axis, inner: Axis, drop: float) -> None:
        super().__init__()
        self.inner, self.drop = inner, drop
        self.q, self.k, self.v = (ElasticLinear(embed, inner) for _ in range(3))
        self.proj = ElasticLinear(inner, embed)

    def widths(self, choices: BlockChoices) -> Iterator[tuple[Axis, int]]:
        """Yield the axis of queries, keys and values, and its width."""
        yield self.inner, choices.inner

    def gather(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Apply attention to queries (B, heads, N, d), keys and values; return (B, N, E)."""
        out = attend(q, k, v, self.drop if self.training else 0.0)
        return self.proj(out.transpose(1, 2).flatten(2))


def split(x: Tensor, num_heads: int) -> Tensor:
    """Split (B, N, inner) into (B, heads, N, inner / heads)."""
    return x.unflatten(-1, (num_heads, -1)).transpose(1, 2)


class ViTASAttention(Heads):
    """Multi-head self-attention of all tokens."""

    def forward(self, x: Tensor, num_heads: int) -> Tensor:
        """(B, N, E) → (B, N, E)."""
        return self.gather(*(split(layer(x), num_heads) for layer in (self.q, self.k, self.v)))


class OfficialAttention(nn.Module):
    """Attention as ViTAS's code shares it: each number of heads has its own queries and keys, cut as one.

    A row that is a query at one width may be a key at another.

    Args:
        embed: Axis of the tokens.
        inner: Axis of the values.
        joint: Axis of queries and keys together.
        drop: Dropout of the attention weights.
        num_heads: All numbers of heads.
        superformer: Width of the superformer, which scales scores, whatever the heads. None for a network that stands
            alone; its width over its heads scales them.
    """

    def __init__(
        self, embed: Axis, inner: Axis, joint: Axis, drop: float, num_heads: Iterable[int], superformer: int | None
    ) -> None:
        super().__init__()
        self.inner, self.joint, self.drop, self.superformer = inner, joint, drop, superformer
        self.v = ElasticLinear(embed, inner)
        self.proj = ElasticLinear(inner, embed)
        self.qk = nn.ModuleDict({str(heads): ElasticLinear(embed, joint) for heads in num_heads})

    def widths(self, choices: BlockChoices) -> Iterator[tuple[Axis, int]]:
        """Yield the axes of the values and of queries and keys together, and their widths."""
        yield self.inner, choices.inner
        yield self.joint, 2 * choices.inner

    def check_heads(self, path: str, num_heads: int) -> None:
        """Check that there are queries and keys for a number of heads.

        Raises:
            ArchError: There are none.
        """
        if str(num_heads) not in self.qk:
            raise ArchError(f'{path}.num_heads is {num_heads}; the weights have queries for {", ".join(self.qk)}')

    def forward(self, x: Tensor, num_heads: int) -> Tensor:
        """(B, N, E) → (B, N, E)."""
        parts = (*self.qk[str(num_heads)](x).chunk(2, -1), self.v(x))
        q, k, v = (split(part, num_heads) for part in parts)
        scaled_by = x.shape[-1] // num_heads if self.superformer is None else self.superformer // 3
        out = attend(q, k, v, self.drop if self.training else 0.0, scaled_by**-0.5)
        return self.proj(out.transpose(1, 2).flatten(2))


class ViTASBlock(nn.Module):
    """A pre-norm transformer block: attention and MLP, each with a residual.

    Args:
        attn: The attention.
        embed: Axis of the tokens.
        hidden: Axis of the hidden units.
        drop_path: Chance that a sample skips a branch.
        eps: Added to the variance in its norms.
    """

    def __init__(
        self, attn: Heads | OfficialAttention, embed: Axis, hidden: Axis, drop_path: float, eps: float
    ) -> None:
        super().__init__()
        self.hidden = hidden
        self.norm1 = ElasticLayerNorm(embed, eps)
        self.attn = attn
        self.norm2 = ElasticLayerNorm(embed, eps)
        self.fc1 = ElasticLinear(embed, hidden)
        self.fc2 = ElasticLinear(hidden, embed)
        self.drop_path = DropPath(drop_path)

    def widths(self, choices: BlockChoices) -> Iterator[tuple[Axis, int]]:
        """Yield the axes of the attention and of the hidden units, and their widths."""
        yield from self.attn.widths(choices)
        yield self.hidden, choices.hidden_dim

    def forward(self, x: Tensor, num_heads: int, *args: object) -> Tensor:
        """Tokens (B, N, E) or a map (B, H, W, E) → the same."""
        x = x + self.drop_path(self.attn(self.norm1(x), num_heads, *args))
        return x + self.drop_path(self.fc2(F.gelu(self.fc1(self.norm2(x)))))


class LocalAttention(Heads):
    """Self-attention inside windows that do not overlap (Twins: locally-grouped).

    Args:
        embed: Axis of the tokens.
        inner: Common axis of queries, of keys and of values.
        drop: Dropout of the attention weights.
        window_size: Side of a window.
    """

    def __init__(self, embed: Axis, inner: Axis, drop: float, window_size: int) -> None:
        super().__init__(embed, inner, drop)
        self.window_size = window_size

    def forward(self, x: Tensor, num_heads: int, common: WindowTables) -> Tensor:
        """(B, H, W, E) → (B, H, W, E); tokens that fill up windows take no part."""
        height, width = x.shape[1], x.shape[2]
        windows = Windows(height, width, window_of((height, width), self.window_size), 0)
        x = windows.enter(x)
        q, k, v = (windows.split(layer(x).unflatten(-1, (num_heads, 1, -1)))[0] for layer in (self.q, self.k, self.v))
        mask = common.mask(windows, q.dtype)  # q, k and v are (B, windows, heads, tokens, d)
        # Dimensions are folded so that the mask, one per window, broadcasts over the batch.
        fold = (0, 1) if mask is None else (1, 2)
        bias = None if mask is None else mask.expand(-1, num_heads, -1, -1).flatten(0, 1)
        drop = self.drop if self.training else 0.0
        out = attend(q.flatten(*fold), k.flatten(*fold), v.flatten(*fold), drop, bias=bias)
        return self.proj(windows.join(out.view(q.shape)))


class GlobalAttention(Heads):
    """Attention of all tokens to one summary of each cell of tokens (Twins: global sub-sampled).

    Args:
        embed: Axis of the tokens.
        inner: Common axis of queries, of keys and of values.
        drop: Dropout of the attention weights.
        ratio: Side of a cell; no token attends to rows and columns that fill no cell.
    """

    def __init__(self, embed: Axis, inner: Axis, drop: float, ratio: int) -> None:
        super().__init__(embed, inner, drop)
        self.ratio = ratio
        self.sr = ElasticConv2d(embed, embed, ratio, ratio) if ratio > 1 else None
        self.norm = ElasticLayerNorm(embed) if ratio > 1 else None

    def forward(self, x: Tensor, num_heads: int, common: WindowTables) -> Tensor:
        """(B, H, W, E) → (B, H, W, E)."""
        size = x.shape[1:3]
        cells = x.flatten(1, 2)
        if self.sr is not None and self.norm is not None:
            maps = x.permute(0, 3, 1, 2)
            bottom, right = (max(0, self.ratio - side) for side in size)
            maps = F.pad(maps, (0, right, 0, bottom)) if bottom or right else maps
            cells = self.norm(self.sr(maps).flatten(2).transpose(1, 2))
        q, k, v = self.q(x.flatten(1, 2)), self.k(cells), self.v(cells)
        return self.gather(*(split(part, num_heads) for part in (q, k, v))).unflatten(1, size)


class TwinsSlot(nn.ModuleDict):
    """A place for a block: one of several, each with its own weights.

    Args:
        blocks: The blocks, by kind of attention; empty for a place without a block.
    """

    def __init__(self, blocks: dict[str, ViTASBlock]) -> None:
        super().__init__(blocks)

    def block(self, op: str) -> ViTASBlock:
        """Return the block of a kind of attention."""
        return cast('ViTASBlock', self[op])

    def forward(self, x: Tensor, op: str, num_heads: int, common: WindowTables) -> Tensor:
        """(B, H, W, E) → (B, H, W, E)."""
        return self[op](x, num_heads, common)


class TwinsStage(nn.Module):
    """Patches of the map before, blocks, and position encoding behind the first block.

    Args:
        channels: Axis of the map before.
        embed: Axis of the tokens.
        patch_size: Side of a patch.
        slots: The places for blocks.
    """

    def __init__(self, channels: Axis | int, embed: Axis, patch_size: int, slots: Sequence[TwinsSlot]) -> None:
        super().__init__()
        self.proj = ElasticConv2d(channels, embed, patch_size, patch_size)
        self.norm = ElasticLayerNorm(embed)
        self.peg = ElasticDepthwiseConv2d(embed, PEG_SIDE)
        self.blocks = nn.ModuleList(slots)

    @property
    def slots(self) -> list[TwinsSlot]:
        """The places for blocks."""
        return cast('list[TwinsSlot]', list(self.blocks))

    def embed(self, x: Tensor) -> Tensor:
        """A map (B, C, H, W), padded to whole patches → (B, H', W', E)."""
        return self.norm(self.proj(pad_to(x, self.proj.stride[0])).permute(0, 2, 3, 1))

    def encode(self, x: Tensor) -> Tensor:
        """Add position information from neighbours to (B, H, W, E) (CPVT, arXiv 2102.10882)."""
        return x + self.peg(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
