"""Successive halving: many architectures on a few images, the better ones on more (Jamieson and Talwalkar, 2016)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ...registry import ALGORITHMS
from ...utils import checks
from ..arguments import check_counts
from .base import Proposal, SearchAlgorithm


@ALGORITHMS.register_module()
@dataclass
class Halving(SearchAlgorithm):
    """Score random architectures on a small part of the hold-out images; keep the best for ``factor`` times as many.

    The last round uses all images; only its candidates compete for the best.

    Args:
        num_candidates: Number of architectures in the first round.
        factor: Each round keeps one architecture in ``factor``. Defaults to 3.
        least_share: Smallest fraction of the images that a round may use. Defaults to 0.1.

    Raises:
        VitnasError: A number is out of range.
    """

    num_candidates: int
    factor: int = 3
    least_share: float = 0.1

    journal_name = 'SuccessiveHalvingLoop'

    def __post_init__(self) -> None:
        check_counts(self, num_candidates=1, factor=2)
        checks.fraction('least_share', self.least_share)

    @property
    def max_rounds(self) -> int:
        """Number of rounds that the candidates and the smallest fraction allow."""
        rounds = 1
        while self.factor**rounds <= self.num_candidates and self.factor**-rounds >= self.least_share:
            rounds += 1
        return rounds

    @property
    def max_candidates(self) -> int:
        """Number of candidates of all rounds."""
        return sum(self._size(number) for number in range(self.max_rounds))

    def ask(self, rng: np.random.Generator) -> list[Proposal]:
        """Draw random architectures, then keep the better ones of the round before."""
        fraction = float(self.factor) ** (self.round + 1 - self.max_rounds)
        if self.round:
            before = [candidate for candidate in self.history if candidate.generation == self.round - 1]
            before.sort(key=lambda c: (-c.score, c.cost['macs'], c.id))
            return [Proposal(c.arch, (c.id,), fraction) for c in before[: self._size(self.round)]]
        return [Proposal(arch, fraction=fraction) for arch in self.space.draw_several(self.num_candidates, rng)]

    def _size(self, number: int) -> int:
        return math.ceil(self.num_candidates / self.factor**number)
