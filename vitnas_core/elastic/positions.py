"""Tables of absolute positions, for any grid."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def resize_positions(table: Tensor, source: tuple[int, int], target: tuple[int, int], tokens: int = 0) -> Tensor:
    """Interpolate absolute positions (1, tokens + h·w, C) from one grid to another, bicubically.

    Args:
        table: The positions.
        source: Rows and columns that they are for.
        target: Rows and columns that are wanted.
        tokens: How many leading ones, such as the class token's, have no place and stay. Defaults to 0.
    """
    if source == target:
        return table
    patches = table[:, tokens:].unflatten(1, source).permute(0, 3, 1, 2)
    patches = F.interpolate(patches, target, mode='bicubic', align_corners=False)
    return torch.cat([table[:, :tokens], patches.flatten(2).transpose(1, 2)], 1)
