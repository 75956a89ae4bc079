"""AutoFormer's 2-D relative positions on keys and values, exact, in one fused attention for any H × W.

The published code expands the tables to two tensors of N × N × d per layer. Here the score of a pair is
an inner product of longer vectors. For a fixed query, the position term depends only on the key's row and
column. So the query carries one number per row and column of the grid, and the key carries one-hots. The
same one-hots, appended to the value, make the attention return the weight on each row and column. The
values' term follows from these weights.

The term of the class token (row 0 of the tables) is subtracted from every score, which does not change the
softmax. So only pairs of patches need extra numbers. The value side needs one more entry, for the weight on
the class token.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .attention import attend

_LANES = 16
"""Vectors are zero-padded to a multiple of this: kernels are a quarter slower at odd lengths."""


@dataclass(frozen=True)
class TokenGrid:
    """A grid of tokens with the lookups that relative positions need.

    Made once per forward pass (0.2 ms) and used by every block. It is not cached: a cache would also keep
    the fake tensors of an export.

    Args:
        height: Rows of patches.
        width: Columns of patches.
        one_hots: (1 + H·W, extra): class token, row, column, zero padding.
        rows: Table rows of all pairs of grid rows, (H queries, H keys).
        columns: Likewise for grid columns, (W, W).
    """

    height: int
    width: int
    one_hots: Tensor
    rows: Tensor
    columns: Tensor

    @classmethod
    def make(cls, height: int, width: int, head_dim: int, reach: int, device: torch.device) -> TokenGrid:
        """Lay out a grid of ``height`` × ``width`` patches behind a class token."""
        extra = 1 + height + width
        extra += -(head_dim + extra) % _LANES
        row, column = torch.arange(height, device=device), torch.arange(width, device=device)
        hot = torch.zeros(height, width, extra, device=device)
        hot[:, :, 1 : 1 + height] = torch.eye(height, device=device)[:, None]
        hot[:, :, 1 + height : 1 + height + width] = torch.eye(width, device=device)
        hot = F.pad(hot.flatten(0, 1), (0, 0, 1, 0))
        hot[0, 0] = 1

        def pairs(position: Tensor) -> Tensor:
            return (position[None, :] - position[:, None]).clamp(-reach, reach) + reach + 1

        return cls(height, width, hot, pairs(row), pairs(column))


class RelativePositions2D(nn.Module):
    """Learned vertical and horizontal offsets on keys and values (AutoFormer, after Shaw et al.).

    score(i, j) = scale · q_i · (k_j + Kv[row_j − row_i] + Kh[col_j − col_i]),
    out(i) = Σ_j p_ij (v_j + Vv[row_j − row_i] + Vh[col_j − col_i]).

    Token 0 is the class token. Row 0 of each table is for pairs with the class token, row ``reach + 1 + o``
    for the offset ``o``, clipped to ±``reach``. All heads share the tables.

    Args:
        head_dim: Size of a head.
        reach: Largest offset with its own row. Defaults to 14.
    """

    def __init__(self, head_dim: int, reach: int = 14) -> None:
        super().__init__()
        self.key_vertical = nn.Parameter(torch.empty(2 * reach + 2, head_dim))
        self.key_horizontal = nn.Parameter(torch.empty(2 * reach + 2, head_dim))
        self.value_vertical = nn.Parameter(torch.empty(2 * reach + 2, head_dim))
        self.value_horizontal = nn.Parameter(torch.empty(2 * reach + 2, head_dim))
        for table in self.parameters():
            nn.init.trunc_normal_(table, std=0.02)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, grid: TokenGrid, drop: float = 0.0) -> Tensor:
        """Attention with relative positions.

        Args:
            q: Queries (B, heads, 1 + H·W, d), class token first. ``k`` and ``v`` likewise.
            k: Keys.
            v: Values.
            grid: Grid of the tokens.
            drop: Dropout of the attention weights. Defaults to 0.

        Returns:
            (B, heads, 1 + H·W, d).
        """
        d = q.shape[-1]
        hot = grid.one_hots.to(q.dtype).expand(*q.shape[:2], -1, -1)
        filler = hot.shape[-1] - 1 - grid.height - grid.width
        base = self.key_vertical[0] + self.key_horizontal[0]
        rows = F.embedding(grid.rows, self.key_vertical) - base
        columns = F.embedding(grid.columns, self.key_horizontal)
        patches = q[:, :, 1:].unflatten(2, (grid.height, grid.width))
        terms = torch.cat([_along_rows(patches, rows.mT), _along_columns(patches, columns.mT)], -1).flatten(2, 3)
        # Zeros for the class token as key (first column) and as query (first row).
        terms = F.pad(terms, (1, filler, 1, 0))
        keys, values = torch.cat([k, hot], -1), torch.cat([v, hot], -1)
        out = attend(torch.cat([q, terms], -1), keys, values, drop, scale=d**-0.5)
        content, on_class, on_rows, on_columns, _ = out.split([d, 1, grid.height, grid.width, filler], -1)
        return content + self._value_terms(on_class, on_rows, on_columns, grid)

    def _value_terms(self, on_class: Tensor, on_rows: Tensor, on_columns: Tensor, grid: TokenGrid) -> Tensor:
        """Σ_j p_ij (Vv + Vh) from the attention weight on the class token, on each row and on each column."""
        base = (self.value_vertical[0] + self.value_horizontal[0]).to(on_class.dtype)  # not promoted under autocast
        rows = F.embedding(grid.rows, self.value_vertical)
        columns = F.embedding(grid.columns, self.value_horizontal)
        by_row, by_column = (w[:, :, 1:].unflatten(2, (grid.height, grid.width)) for w in (on_rows, on_columns))
        patches = (_along_rows(by_row, rows) + _along_columns(by_column, columns)).flatten(2, 3)
        # With the class token as query, every pair has the base vector: itself and all patches.
        whole = on_class[:, :, :1] + on_rows[:, :, :1].sum(-1, keepdim=True)
        return torch.cat([whole * base, patches + on_class[:, :, 1:] * base], 2)


def _along_rows(x: Tensor, matrices: Tensor) -> Tensor:
    """Multiply (B, heads, H, W, a) by the matrix of its row, (H, a, b)."""
    return torch.einsum('nhrwa,rab->nhrwb', x, matrices)


def _along_columns(x: Tensor, matrices: Tensor) -> Tensor:
    """Multiply (B, heads, H, W, a) by the matrix of its column, (W, a, b)."""
    return torch.einsum('nhrwa,wab->nhrwb', x, matrices)
