"""Switchable scaling: each width scales a branch by its own vector (NASViT, Sec. 3)."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from ..errors import ArchError

INIT = 1e-4
"""Initial value of the vectors; the paper takes CaiT's."""


class SwitchableScale(nn.Module):
    """A private vector w[c, d] for each width c at the output of a branch of layer d: w ⊙ x.

    Args:
        widths: All widths.
    """

    def __init__(self, widths: Iterable[int]) -> None:
        super().__init__()
        self.vectors = nn.ParameterDict({str(width): nn.Parameter(torch.full((width,), INIT)) for width in widths})

    @staticmethod
    def pair(widths: Iterable[int] | None) -> tuple[nn.Module, nn.Module]:
        """Scalings of a block's two kinds of branches; identities if ``widths`` is None."""
        if widths is None:
            return nn.Identity(), nn.Identity()
        return SwitchableScale(widths), SwitchableScale(widths)

    @staticmethod
    def check(scale: nn.Module, path: str, width: int) -> None:
        """Check that a :class:`SwitchableScale` has a vector for a width; accept any other module.

        Raises:
            ArchError: There is no such vector.
        """
        if type(scale) is SwitchableScale and str(width) not in scale.vectors:
            raise ArchError(f'{path} is {width}; there are scaling vectors for {", ".join(scale.vectors)}')

    def forward(self, x: Tensor) -> Tensor:
        """Scale the last axis of (…, width)."""
        if len(self.vectors) == 1:  # a fixed network
            return x * next(iter(self.vectors.values()))
        return x * self.vectors[str(x.shape[-1])]
