"""What S3's stages are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..costs.s3 import HEAD_DIM, S3Block
from ..elastic import (
    Channels,
    DropPath,
    ElasticConv2d,
    ElasticLayerNorm,
    ElasticLinear,
    RelativeBias,
    Reorder,
    SwitchableScale,
    Windows,
    WindowTables,
    attend,
    order_heads,
    order_hidden,
    share_block,
)
from .mixed import Sharing


class WindowAttention(nn.Module):
    """Multi-head self-attention inside windows, with a bias for relative positions.

    Rows of ``qkv`` keep q, k and v of a head together, heads one after another, so that any number of heads is a
    prefix; so are the offsets of a smaller window in the bias table.

    Args:
        width: Largest width of the tokens.
        num_heads: Largest number of heads.
        sizes: Window sizes that there are.
        shifted: Whether windows are shifted by half their size where the map is larger than they are.
        shared: One bias table for all window sizes, or one each.
        drop: Dropout of the attention weights.
    """

    def __init__(
        self, width: int, num_heads: int, sizes: Sequence[int], shifted: bool, shared: bool, drop: float
    ) -> None:
        super().__init__()
        self.shifted, self.drop = shifted, drop
        self.size = max(sizes)
        """The active window size."""
        self.groups: list[tuple[int, Tensor]] = []
        """Window sizes and the samples that have them, where samples differ."""
        self.qkv = ElasticLinear(width, 3 * HEAD_DIM * num_heads)
        self.bias = RelativeBias(sizes, num_heads, shared)
        self.proj = ElasticLinear(HEAD_DIM * num_heads, width)

    def forward(self, x: Tensor, common: WindowTables) -> Tensor:
        """(B, H, W, E) → (B, H, W, E)."""
        if not self.groups:
            return self.proj(self._attend(x, self.size, common))
        parts = [self._attend(x[rows], size, common) for size, rows in self.groups]
        order = torch.cat([rows for _, rows in self.groups]).argsort()
        return self.proj(torch.cat(parts)[order])

    def share(self, sizes: Sequence[int], sharing: Sharing) -> None:
        """Set the window sizes that the architectures of a masked pass have; ``set_choice`` undoes it."""
        rows: dict[int, list[int]] = {}
        for row, owner in enumerate(sharing.owners):
            rows.setdefault(sizes[owner], []).append(row)
        self.size = max(rows)
        self.groups = [(size, torch.tensor(own, device=sharing.device)) for size, own in rows.items() if len(rows) > 1]

    def _attend(self, x: Tensor, size: int, common: WindowTables) -> Tensor:
        """(B, H, W, E) → what the heads gather, (B, H, W, heads · 32)."""
        windows = Windows.of(x.shape[1], x.shape[2], size, self.shifted)
        qkv = self.qkv(windows.enter(x))
        heads = qkv.shape[-1] // (3 * HEAD_DIM)
        qkv = windows.split(qkv.unflatten(-1, (heads, 3, HEAD_DIM)))  # (3, B, windows, heads, tokens, 32)
        bias = self.bias(size, windows, heads, common)
        mask = common.mask(windows, bias.dtype)
        # Axes are folded so that the bias broadcasts: (B · windows, heads, …), or (B, windows · heads, …) where it
        # differs from window to window; it never grows with the batch.
        bias = bias if mask is None else (bias + mask).flatten(0, 1)
        q, k, v = (qkv.flatten(1, 2) if mask is None else qkv.flatten(2, 3)).unbind(0)
        out = attend(q, k, v, self.drop if self.training else 0.0, HEAD_DIM**-0.5, bias)
        return windows.join(out.view(qkv.shape[1:]))


class Block(nn.Module):
    """A pre-norm transformer block: attention in windows and MLP, each with a residual.

    Args:
        width: Largest width of the tokens.
        hidden: Largest hidden width of the MLP.
        drop_path: Chance that a sample skips a branch.
        widths: Widths with scaling vectors of their own; None for no scaling.
        **attention: Arguments of :class:`WindowAttention`.
    """

    def __init__(
        self, width: int, hidden: int, drop_path: float, widths: Sequence[int] | None, **attention: Any
    ) -> None:
        super().__init__()
        self.norm1 = ElasticLayerNorm(width)
        self.attn = WindowAttention(width, **attention)
        self.norm2 = ElasticLayerNorm(width)
        self.fc1 = ElasticLinear(width, hidden)
        self.fc2 = ElasticLinear(hidden, width)
        self.scale_attn, self.scale_mlp = SwitchableScale.pair(widths)
        self.drop_path = DropPath(drop_path)

    def share_channels(self, embed: Channels | None, heads: Channels | None, hidden: Channels | None) -> None:
        """Let architectures of different widths share channels, heads and hidden units by a pattern."""
        share_block(self, embed, heads, hidden, HEAD_DIM)
        self.attn.bias.heads = heads

    def set_choice(self, embed_dim: int, choice: S3Block, side: int) -> None:
        """Activate a width and the choices of the block; ``side`` is that of the map that windows are clamped to."""
        self.attn.qkv.width = 3 * HEAD_DIM * choice.num_heads
        self.attn.size, self.attn.groups = min(choice.window_size, side), []
        self.attn.proj.width = self.fc2.width = embed_dim
        self.fc1.width = int(embed_dim * choice.mlp_ratio)

    def input_widths(self, embed_dim: int, choice: S3Block) -> dict[nn.Module, int]:
        """Channels that layers get; see :meth:`ElasticBackbone.input_widths`."""
        inner, hidden = choice.num_heads * HEAD_DIM, int(embed_dim * choice.mlp_ratio)
        return {self.norm1: embed_dim, self.attn.proj: inner, self.norm2: embed_dim, self.fc2: hidden}

    def importance_orders(self) -> list[Reorder]:
        """New orders of heads and hidden units; see :meth:`ElasticBackbone.importance_orders`."""
        heads = order_heads(self.attn.qkv, self.attn.proj, HEAD_DIM, self.attn.bias.tables.values())
        return heads + order_hidden(self.fc1, self.fc2)

    def forward(self, x: Tensor, common: WindowTables) -> Tensor:
        """(B, H, W, E) → (B, H, W, E)."""
        x = x + self.drop_path(self.scale_attn(self.attn(self.norm1(x), common)))
        return x + self.drop_path(self.scale_mlp(self.fc2(F.gelu(self.fc1(self.norm2(x))))))


class PatchEmbedding(nn.Module):
    """Patches to tokens: a convolution without overlap, and a norm.

    Args:
        width: Largest width of the tokens.
        patch_size: Side of a patch.
    """

    def __init__(self, width: int, patch_size: int) -> None:
        super().__init__()
        self.proj = ElasticConv2d(3, width, patch_size, patch_size)
        self.norm = ElasticLayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        """(B, 3, H, W), padded to whole patches → (B, H', W', E)."""
        right, bottom = (-side % self.proj.stride[0] for side in (x.shape[3], x.shape[2]))
        if right or bottom:
            x = F.pad(x, (0, right, 0, bottom))
        return self.norm(self.proj(x).permute(0, 2, 3, 1))


class PatchMerging(nn.Module):
    """Each 2 × 2 cell to one token: a norm over its four tokens together, and a linear layer.

    The four values of a channel stand together (row by row), so that the first channels of all four tokens are the
    first inputs. The published layout has four groups of all channels, column by column.

    Args:
        width: Largest width of the tokens.
        out: Largest width of the next stage.
    """

    def __init__(self, width: int, out: int) -> None:
        super().__init__()
        self.norm = ElasticLayerNorm(4 * width)
        self.reduction = ElasticLinear(4 * width, out, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(B, H, W, E), padded to even sides → (B, H / 2, W / 2, out)."""
        if x.shape[1] % 2 or x.shape[2] % 2:
            x = F.pad(x, (0, 0, 0, x.shape[2] % 2, 0, x.shape[1] % 2))
        cells = x.unflatten(2, (-1, 2)).unflatten(1, (-1, 2)).permute(0, 1, 3, 2, 4, 5).flatten(3, 4)
        # Two copies, tokens to cells and cells to channels, take less than half as long as one that does both.
        return self.reduction(self.norm(cells.transpose(3, 4).flatten(3)))


class Stage(nn.Module):
    """The blocks of one width, and the merging that leads to it.

    Args:
        merging: What comes before the blocks; the first stage has none.
        blocks: The blocks.
    """

    def __init__(self, merging: PatchMerging | None, blocks: Sequence[Block]) -> None:
        super().__init__()
        self.merging = merging
        self.blocks = nn.ModuleList(blocks)
