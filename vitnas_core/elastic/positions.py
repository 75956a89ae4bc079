"""Tables of absolute positions for any grid."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def resize_positions(table: Tensor, source: tuple[int, int], target: tuple[int, int], tokens: int = 0) -> Tensor:
    """Interpolate absolute positions (1, tokens + h·w, C) from one grid to another, bicubically.

    Args:
        table: The positions.
        source: Rows and columns of the table.
        target: Rows and columns of the result.
        tokens: Number of leading entries outside the grid, such as the class token's; they stay. Defaults to 0.
    """
    if source == target:
        return table
    patches = table[:, tokens:].unflatten(1, source).permute(0, 3, 1, 2)
    patches = F.interpolate(patches, target, mode='bicubic', align_corners=False)
    return torch.cat([table[:, :tokens], patches.flatten(2).transpose(1, 2)], 1)


@dataclass(frozen=True)
class PositionTable:
    """The grid of a network's absolute positions (1, tokens + h·w, C).

    Args:
        grid: Rows and columns.
        grid_of: Maps an image size to its grid.
        tokens: Number of leading entries outside the grid. Defaults to 0.
    """

    grid: tuple[int, int]
    grid_of: Callable[[tuple[int, int]], tuple[int, int]]
    tokens: int = 0

    def fit(self, weights: dict[str, Any], name: str, img_size: tuple[int, int] | None) -> None:
        """Resize stored positions of another image size to this grid, in place.

        Args:
            weights: Weights by name; the table may be missing.
            name: The name of the table.
            img_size: Image size of the stored positions. None: they have this grid if the number fits, else a square.
        """
        stored = weights.get(name)
        if stored is None or stored.ndim != 3:
            return
        patches = stored.shape[1] - self.tokens
        if img_size is not None:
            source = self.grid_of(img_size)
        else:
            source = self.grid if patches == math.prod(self.grid) else (math.isqrt(patches),) * 2
        if source != self.grid and math.prod(source) == patches:
            weights[name] = resize_positions(stored, source, self.grid, self.tokens)
