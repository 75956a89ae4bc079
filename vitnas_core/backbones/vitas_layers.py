"""What the blocks of ViTAS's spaces are made of: heads that divide whatever width the attention has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from ..costs.vitas_deit import ViTASBlock
from ..costs.vitas_twins import PEG_SIDE, window_of
from ..elastic import (
    Channels,
    DropPath,
    ElasticConv2d,
    ElasticDepthwiseConv2d,
    ElasticLayerNorm,
    ElasticLinear,
    Pattern,
    Reorder,
    Windows,
    WindowTables,
    attend,
    order_hidden,
)
from ..errors import ArchError


class Attention(nn.Module):
    """Multi-head self-attention of all tokens.

    Any number of heads divides the active channels evenly, so heads change what belongs together, not how much there is
    (ViTAS, A.2).

    Args:
        width: Largest width of the tokens.
        inner: Largest width of queries, of keys, and of values.
        drop: Dropout of the attention weights.
    """

    def __init__(self, width: int, inner: int, drop: float) -> None:
        super().__init__()
        self.drop, self.num_heads = drop, 1
        self.q, self.k, self.v = (ElasticLinear(width, inner) for _ in range(3))
        self.proj = ElasticLinear(inner, width)

    def set_choice(self, embed_dim: int, choice: ViTASBlock) -> None:
        """Activate a width of the tokens, and the heads of a block."""
        self.num_heads, self.proj.width = choice.num_heads, embed_dim
        self.q.width = self.k.width = self.v.width = choice.inner

    def share_channels(self, pattern: Pattern, embed: Channels | None, inner: Sequence[int]) -> None:
        """Let architectures share channels by a pattern.

        Args:
            pattern: The pattern.
            embed: Whose channels the tokens have.
            inner: Widths of queries, of keys, and of values that there are.
        """
        heads = pattern.channels(self.proj.in_features, inner)
        for layer in (self.q, self.k, self.v):
            layer.inputs, layer.outputs = embed, heads
        self.proj.inputs, self.proj.outputs = heads, embed

    def check_fits(self, choice: ViTASBlock) -> None:
        """Check that the weights have a block's heads.

        Raises:
            ArchError: They have not.
        """
        if choice.inner > self.proj.in_features:
            raise ArchError(f'.qkv_dim is {choice.qkv_dim}; the weights have {3 * self.proj.in_features}')

    def split(self, x: Tensor) -> Tensor:
        """(B, N, inner) → (B, heads, N, inner / heads)."""
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

    def gather(self, q: Tensor, k: Tensor, v: Tensor, scale: float | None = None) -> Tensor:
        """What queries (B, heads, N, d) gather from values, (B, N, E)."""
        out = attend(q, k, v, self.drop if self.training else 0.0, scale)
        return self.proj(out.transpose(1, 2).flatten(2))

    def forward(self, x: Tensor) -> Tensor:
        """(B, N, E) → (B, N, E)."""
        return self.gather(self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x)))


class OfficialAttention(Attention):
    """Attention as ViTAS's code shares it: each number of heads has queries and keys of its own, cut as one.

    At a part of the width, the same row serves as query at one and as key at another.

    Args:
        width: Largest width of the tokens.
        inner: Largest width of queries, of keys, and of values.
        drop: Dropout of the attention weights.
        num_heads: The numbers of heads that there are.
        superformer: Width of the superformer: scores are scaled by it, whatever the heads; None for a network that
            stands alone, whose width over heads scales them.
    """

    def __init__(self, width: int, inner: int, drop: float, num_heads: Iterable[int], superformer: int | None) -> None:
        super().__init__(width, inner, drop)
        del self.q, self.k
        self.superformer = superformer
        self.qk = nn.ModuleDict({str(heads): ElasticLinear(width, 2 * inner) for heads in num_heads})

    @property
    def _qk(self) -> ElasticLinear:
        return self.qk[str(self.num_heads)]  # type: ignore[return-value]

    def set_choice(self, embed_dim: int, choice: ViTASBlock) -> None:
        """Activate a width of the tokens, and the heads of a block."""
        self.num_heads, self.proj.width, self.v.width = choice.num_heads, embed_dim, choice.inner
        self._qk.width = 2 * choice.inner

    def share_channels(self, pattern: Pattern, embed: Channels | None, inner: Sequence[int]) -> None:
        """Let architectures share channels by a pattern; queries and keys on one ring."""
        heads = pattern.channels(self.proj.in_features, inner)
        joint = pattern.channels(2 * self.proj.in_features, [2 * width for width in inner])
        for layer in self.qk.values():
            layer.inputs, layer.outputs = embed, joint  # type: ignore[assignment]
        self.v.inputs, self.v.outputs = embed, heads
        self.proj.inputs, self.proj.outputs = heads, embed

    def check_fits(self, choice: ViTASBlock) -> None:
        """Check that the weights have a block's heads, and queries and keys for their number."""
        super().check_fits(choice)
        if str(choice.num_heads) not in self.qk:
            raise ArchError(f'.num_heads is {choice.num_heads}; the weights have queries for {", ".join(self.qk)}')

    def forward(self, x: Tensor) -> Tensor:
        """(B, N, E) → (B, N, E)."""
        q, k = (self.split(part) for part in self._qk(x).chunk(2, -1))
        scaled_by = x.shape[-1] // self.num_heads if self.superformer is None else self.superformer // 3
        return self.gather(q, k, self.split(self.v(x)), scaled_by**-0.5)


class Block(nn.Module):
    """A pre-norm transformer block: attention and MLP, each with a residual.

    Args:
        attn: The attention.
        width: Largest width of the tokens.
        hidden: Largest hidden width of the MLP.
        drop_path: Chance that a sample skips a branch.
        eps: What its norms add to the variance.
    """

    def __init__(self, attn: Attention, width: int, hidden: int, drop_path: float, eps: float) -> None:
        super().__init__()
        self.norm1 = ElasticLayerNorm(width, eps)
        self.attn = attn
        self.norm2 = ElasticLayerNorm(width, eps)
        self.fc1 = ElasticLinear(width, hidden)
        self.fc2 = ElasticLinear(hidden, width)
        self.drop_path = DropPath(drop_path)

    def set_choice(self, embed_dim: int, choice: ViTASBlock) -> None:
        """Activate a width of the tokens and the choices of the block."""
        self.attn.set_choice(embed_dim, choice)
        self.fc1.width, self.fc2.width = choice.hidden_dim, embed_dim

    def share_channels(
        self, pattern: Pattern, embed: Channels | None, inner: Sequence[int], hidden: Sequence[int]
    ) -> None:
        """Let architectures share channels by a pattern; see :meth:`Attention.share_channels`."""
        self.norm1.inputs = self.norm2.inputs = self.fc1.inputs = self.fc2.outputs = embed
        self.fc1.outputs = self.fc2.inputs = pattern.channels(self.fc1.out_features, hidden)
        self.attn.share_channels(pattern, embed, inner)

    def check_fits(self, path: str, choice: ViTASBlock) -> None:
        """Check that the weights can run the choices of a block.

        Raises:
            ArchError: They cannot; the message begins with ``path``.
        """
        try:
            self.attn.check_fits(choice)
        except ArchError as err:
            raise ArchError(f'{path}{err}') from None
        if choice.hidden_dim > self.fc1.out_features:
            raise ArchError(f'{path}.hidden_dim is {choice.hidden_dim}; the weights have {self.fc1.out_features}')

    def importance_orders(self) -> list[Reorder]:
        """A new order of hidden units; heads have no channels of their own."""
        return order_hidden(self.fc1, self.fc2)

    def forward(self, x: Tensor, *args: object) -> Tensor:
        """Tokens (B, N, E) or a map (B, H, W, E) → the same."""
        x = x + self.drop_path(self.attn(self.norm1(x), *args))
        return x + self.drop_path(self.fc2(F.gelu(self.fc1(self.norm2(x)))))


class LocalAttention(Attention):
    """Self-attention inside windows that do not overlap (Twins: locally-grouped).

    Args:
        width: Largest width of the tokens.
        inner: Largest width of queries, of keys, and of values.
        drop: Dropout of the attention weights.
        window_size: Side of a window.
    """

    def __init__(self, width: int, inner: int, drop: float, window_size: int) -> None:
        super().__init__(width, inner, drop)
        self.window_size = window_size

    def forward(self, x: Tensor, common: WindowTables) -> Tensor:  # type: ignore[override]
        """(B, H, W, E) → (B, H, W, E); tokens that fill windows up take no part."""
        height, width = x.shape[1], x.shape[2]
        windows = Windows(height, width, window_of((height, width), self.window_size), 0)
        x = windows.enter(x)
        q, k, v = (
            windows.split(layer(x).unflatten(-1, (self.num_heads, 1, -1)))[0] for layer in (self.q, self.k, self.v)
        )  # (B, windows, heads, tokens, d)
        mask = common.mask(windows, q.dtype)
        # Axes are folded so that the mask, one a window, broadcasts over the batch.
        fold = (0, 1) if mask is None else (1, 2)
        bias = None if mask is None else mask.expand(-1, self.num_heads, -1, -1).flatten(0, 1)
        drop = self.drop if self.training else 0.0
        out = attend(q.flatten(*fold), k.flatten(*fold), v.flatten(*fold), drop, bias=bias)
        return self.proj(windows.join(out.view(q.shape)))


class GlobalAttention(Attention):
    """Attention of all tokens to one cell each of so many (Twins: global sub-sampled).

    Args:
        width: Largest width of the tokens.
        inner: Largest width of queries, of keys, and of values.
        drop: Dropout of the attention weights.
        ratio: Side of a cell; rows and columns that fill no cell are not attended to.
    """

    def __init__(self, width: int, inner: int, drop: float, ratio: int) -> None:
        super().__init__(width, inner, drop)
        self.ratio = ratio
        self.sr = ElasticConv2d(width, width, ratio, ratio) if ratio > 1 else None
        self.norm = ElasticLayerNorm(width) if ratio > 1 else None

    def set_choice(self, embed_dim: int, choice: ViTASBlock) -> None:
        """Activate a width of the tokens, and the heads of a block."""
        super().set_choice(embed_dim, choice)
        if self.sr is not None:
            self.sr.width = embed_dim

    def share_channels(self, pattern: Pattern, embed: Channels | None, inner: Sequence[int]) -> None:
        """Let architectures share channels by a pattern."""
        super().share_channels(pattern, embed, inner)
        if self.sr is not None and self.norm is not None:
            self.sr.inputs = self.sr.outputs = self.norm.inputs = embed

    def forward(self, x: Tensor, common: WindowTables) -> Tensor:  # type: ignore[override]
        """(B, H, W, E) → (B, H, W, E)."""
        size = x.shape[1:3]
        cells = x.flatten(1, 2)
        if self.sr is not None and self.norm is not None:
            maps = x.permute(0, 3, 1, 2)
            bottom, right = (max(0, self.ratio - side) for side in size)
            maps = F.pad(maps, (0, right, 0, bottom)) if bottom or right else maps
            cells = self.norm(self.sr(maps).flatten(2).transpose(1, 2))
        q, k, v = self.split(self.q(x.flatten(1, 2))), self.split(self.k(cells)), self.split(self.v(cells))
        return self.gather(q, k, v).unflatten(1, size)


class Slot(nn.ModuleDict):
    """A place for a block: one of several, each with weights of its own.

    Args:
        blocks: The blocks, by what they attend to; none for a place that is always empty.
    """

    def __init__(self, blocks: dict[str, Block]) -> None:
        super().__init__(blocks)
        self.op = next(iter(blocks), '')
        """The active one."""

    def importance_orders(self) -> list[Reorder]:
        """New orders of hidden units of all its blocks."""
        return [change for block in self.values() for change in block.importance_orders()]  # type: ignore[operator]

    def forward(self, x: Tensor, common: WindowTables) -> Tensor:
        """(B, H, W, E) → (B, H, W, E)."""
        return self[self.op](x, common)


class TwinsStage(nn.Module):
    """Patches of the map before, blocks, and the encoding of positions behind the first of them.

    Args:
        channels: Largest width of the map before.
        width: Largest width of the tokens.
        patch_size: Side of a patch.
        slots: The places for blocks.
    """

    def __init__(self, channels: int, width: int, patch_size: int, slots: Sequence[Slot]) -> None:
        super().__init__()
        self.proj = ElasticConv2d(channels, width, patch_size, patch_size)
        self.norm = ElasticLayerNorm(width)
        self.peg = ElasticDepthwiseConv2d(width, PEG_SIDE)
        self.blocks = nn.ModuleList(slots)

    def embed(self, x: Tensor) -> Tensor:
        """A map (B, C, H, W), padded to whole patches → (B, H', W', E)."""
        right, bottom = (-side % self.proj.stride[0] for side in (x.shape[3], x.shape[2]))
        if right or bottom:
            x = F.pad(x, (0, right, 0, bottom))
        return self.norm(self.proj(x).permute(0, 2, 3, 1))

    def encode(self, x: Tensor) -> Tensor:
        """Add to (B, H, W, E) what neighbours tell of its position (CPVT, arXiv 2102.10882)."""
        return x + self.peg(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
