"""Random search: the baseline that every other search has to beat."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ...registry import ALGORITHMS
from ..arguments import check_counts
from ..candidate import ranked
from .base import Proposal, SearchAlgorithm

_ROUND = 50
"""Candidates per round, as many as in a generation of the published evolution."""


@ALGORITHMS.register_module()
@dataclass
class Random(SearchAlgorithm):
    """Score random architectures within the limits, all different.

    Args:
        num_candidates: Number of architectures.

    Raises:
        VitnasError: ``num_candidates`` is not a whole number of at least 1.
    """

    num_candidates: int

    extendable = ('num_candidates',)
    journal_name = 'RandomSearchLoop'

    def __post_init__(self) -> None:
        check_counts(self, num_candidates=1)

    @property
    def max_rounds(self) -> int:
        """Number of rounds, each of fifty candidates."""
        return math.ceil(self.num_candidates / _ROUND)

    @property
    def max_candidates(self) -> int:
        """Number of candidates."""
        return self.num_candidates

    def ask(self, rng: np.random.Generator) -> list[Proposal]:
        """Draw random architectures."""
        size = min(_ROUND, self.num_candidates - self.round * _ROUND)
        return [Proposal(arch) for arch in self.space.draw_several(size, rng, (c.arch for c in self.history))]

    def floor(self) -> float | None:
        """Best score so far."""
        best = ranked(self.history)
        return best[0].score if best else None
