"""What AutoFormer's blocks are made of."""

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from ..costs.autoformer import HEAD_DIM
from ..elastic import (
    Channels,
    DropPath,
    ElasticLayerNorm,
    ElasticLinear,
    RelativePositions2D,
    Reorder,
    SwitchableScale,
    TokenGrid,
    attend,
    order_heads,
    order_hidden,
    share_block,
)


class QKV(ElasticLinear):
    """The projection to queries, keys and values: those of a head together, heads one after another.

    So any number of heads is a prefix of the rows. The published code cuts its bias as if it lay in
    three thirds of the *active* width, so that one number serves different roles in different
    subnets; ``official`` does the same.

    Args:
        width: Width of the tokens.
        num_heads: Largest number of heads.
        official: Cut the bias as the published code does.
    """

    def __init__(self, width: int, num_heads: int, official: bool) -> None:
        super().__init__(width, 3 * HEAD_DIM * num_heads)
        self.official = official

    def forward(self, x: Tensor) -> Tensor:
        """(B, N, E) → (3, B, heads, N, 64)."""
        bias = self.cut_bias()
        if self.official and bias is not None:
            bias = bias.view(3, -1, HEAD_DIM).transpose(0, 1).flatten()
        qkv = F.linear(x, self.cut(x.shape[-1]), bias)
        return qkv.unflatten(-1, (-1, 3, HEAD_DIM)).permute(3, 0, 2, 1, 4)


class Attention(nn.Module):
    """Multi-head self-attention with relative positions on keys and values.

    Args:
        width: Largest width of the tokens.
        num_heads: Largest number of heads.
        reach: Largest relative offset; 0 for no relative positions.
        drop: Dropout of the attention weights.
        official: See :class:`QKV`.
    """

    def __init__(self, width: int, num_heads: int, reach: int, drop: float, official: bool) -> None:
        super().__init__()
        self.drop = drop
        self.scale = 1.0
        self.qkv = QKV(width, num_heads, official)
        self.relative = RelativePositions2D(HEAD_DIM, reach) if reach else None
        self.proj = ElasticLinear(HEAD_DIM * num_heads, width)

    def forward(self, x: Tensor, grid: TokenGrid | None) -> Tensor:
        """(B, N, E) → (B, N, E)."""
        q, k, v = self.qkv(x).unbind(0)
        drop = self.drop if self.training else 0.0
        out = attend(q, k, v, drop) if self.relative is None else self.relative(q, k, v, grid, drop)
        out = out.transpose(1, 2).flatten(2)
        return self.proj(out if self.scale == 1.0 else out * self.scale)


class Block(nn.Module):
    """A pre-norm transformer block: attention and MLP, each with a residual.

    Args:
        width: Largest width of the tokens.
        num_heads: Largest number of heads.
        hidden: Largest hidden width of the MLP.
        reach: Largest relative offset; 0 for no relative positions.
        attn_drop: Dropout of the attention weights.
        drop_path: Chance that a sample skips a branch.
        official: See :class:`QKV`.
        widths: Widths with scaling vectors of their own; None for no scaling.
    """

    def __init__(
        self,
        width: int,
        num_heads: int,
        hidden: int,
        reach: int,
        attn_drop: float,
        drop_path: float,
        official: bool,
        widths: Sequence[int] | None,
    ) -> None:
        super().__init__()
        self.norm1 = ElasticLayerNorm(width)
        self.attn = Attention(width, num_heads, reach, attn_drop, official)
        self.norm2 = ElasticLayerNorm(width)
        self.fc1 = ElasticLinear(width, hidden)
        self.fc2 = ElasticLinear(hidden, width)
        self.scale_attn, self.scale_mlp = SwitchableScale.pair(widths)
        self.drop_path = DropPath(drop_path)
        self.mlp_scale = 1.0

    def share_channels(self, embed: Channels | None, heads: Channels | None, hidden: Channels | None) -> None:
        """Let architectures of different widths share channels, heads and hidden units by a pattern."""
        share_block(self, embed, heads, hidden, HEAD_DIM)

    def set_choice(self, embed_dim: int, num_heads: int, mlp_ratio: float, rescale: tuple[int, float] | None) -> None:
        """Activate a width, a number of heads and an MLP ratio."""
        self.attn.qkv.width = 3 * HEAD_DIM * num_heads
        self.attn.proj.width = self.fc2.width = embed_dim
        self.fc1.width = int(embed_dim * mlp_ratio)
        if rescale is not None:
            self.attn.scale, self.mlp_scale = rescale[0] / num_heads, rescale[1] / mlp_ratio

    def input_widths(self, embed_dim: int, num_heads: int, mlp_ratio: float) -> dict[nn.Module, int]:
        """Channels that layers get; see :meth:`ElasticBackbone.input_widths`."""
        hidden = int(embed_dim * mlp_ratio)
        return {self.norm1: embed_dim, self.attn.proj: num_heads * HEAD_DIM, self.norm2: embed_dim, self.fc2: hidden}

    def importance_orders(self) -> list[Reorder]:
        """New orders of heads and hidden units; see :meth:`ElasticBackbone.importance_orders`."""
        return order_heads(self.attn.qkv, self.attn.proj, HEAD_DIM) + order_hidden(self.fc1, self.fc2)

    def forward(self, x: Tensor, grid: TokenGrid | None) -> Tensor:
        """(B, N, E) → (B, N, E)."""
        x = x + self.drop_path(self.scale_attn(self.attn(self.norm1(x), grid)))
        hidden = self.scale_mlp(self.fc2(F.gelu(self.fc1(self.norm2(x)))))
        return x + self.drop_path(hidden if self.mlp_scale == 1.0 else hidden * self.mlp_scale)
