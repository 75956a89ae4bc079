"""``PreNormBlock``: the transformer block of AutoFormer and S3."""

from __future__ import annotations

from typing import Any, ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from ..elastic import Axis, DropPath, ElasticLayerNorm, ElasticLinear, SwitchableScale


class PreNormBlock(nn.Module):
    """A pre-norm transformer block: attention and MLP, each with a residual.

    Args:
        embed: Axis of the tokens.
        heads: Axis of the heads.
        hidden: Axis of the hidden units.
        drop_path: Chance that a sample skips a branch.
        scaled: Widths with scaling vectors of their own; None for no scaling.
        **attention: Further arguments of the attention.
    """

    attention_type: ClassVar[type[nn.Module]]
    """Class of the attention, which a subclass names."""

    def __init__(
        self, embed: Axis, heads: Axis, hidden: Axis, drop_path: float, scaled: list[int] | None, **attention: Any
    ) -> None:
        super().__init__()
        self.heads, self.hidden = heads, hidden
        self.norm1 = ElasticLayerNorm(embed)
        self.attn = self.attention_type(embed, heads, **attention)
        self.norm2 = ElasticLayerNorm(embed)
        self.fc1 = ElasticLinear(embed, hidden, normed=True)
        self.fc2 = ElasticLinear(hidden, embed)
        self.scale_attn, self.scale_mlp = SwitchableScale.pair(scaled)
        self.drop_path = DropPath(drop_path)

    def forward(self, x: Tensor, *args: Any) -> Tensor:
        """Tokens (…, E) → (…, E); the attention takes further arguments."""
        x = x + self.drop_path(self.attn_branch(x, *args))
        return x + self.drop_path(self.mlp_branch(x))

    def attn_branch(self, x: Tensor, *args: Any) -> Tensor:
        """The branch of the attention."""
        return self.scale_attn(self.attn(self.norm1(x), *args))

    def mlp_branch(self, x: Tensor) -> Tensor:
        """The branch of the MLP."""
        return self.scale_mlp(self.fc2(F.gelu(self.fc1(self.norm2(x)))))
