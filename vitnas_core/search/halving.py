"""Successive halving: many architectures on a few images, the better ones on more (Jamieson and Talwalkar, 2016)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import VitnasError
from ..registry import LOOPS
from .candidate import Candidate
from .loops import Proposal, SearchLoop


@LOOPS.register_module()
class SuccessiveHalvingLoop(SearchLoop):
    """Score random architectures on a small share of the hold-out images; keep the best, on ``factor`` times more.

    The last round uses all images; only its candidates compete for the best.

    Args:
        num_candidates: How many architectures the first round has.
        factor: Each round keeps one of so many. Defaults to 3.
        least_share: The smallest share of the images that a round may use. Defaults to 0.1.
        **kwargs: Arguments of :class:`SearchLoop`, without ``racing``.

    Raises:
        VitnasError: A number is out of range, or racing is asked for.
    """

    def __init__(
        self, *args: Any, num_candidates: int, factor: int = 3, least_share: float = 0.1, **kwargs: Any
    ) -> None:
        for name, value, least in (('num_candidates', num_candidates, 1), ('factor', factor, 2)):
            if type(value) is not int or value < least:
                raise VitnasError(f'`{name}` should be a whole number of at least {least}, but got {value!r}')
        if not 0 < least_share <= 1:
            raise VitnasError(f'`least_share` should be above 0 and at most 1, but got {least_share!r}')
        if kwargs.get('racing') is not None:
            raise VitnasError('`racing` should be left out of successive halving, which drops candidates itself')
        self.num_candidates, self.factor, self.least_share = num_candidates, factor, least_share
        super().__init__(*args, **kwargs)

    @property
    def generations(self) -> int:
        """Rounds: as many as the candidates and the smallest share allow."""
        rounds = 1
        while self.factor**rounds <= self.num_candidates and self.factor**-rounds >= self.least_share:
            rounds += 1
        return rounds

    def _size(self, generation: int) -> int:
        return math.ceil(self.num_candidates / self.factor**generation)

    @property
    def num_proposals(self) -> int:
        """The candidates of all rounds."""
        return sum(self._size(generation) for generation in range(self.generations))

    def settings(self) -> dict[str, Any]:
        """Everything: each of them changes the rounds."""
        return {'num_candidates': self.num_candidates, 'factor': self.factor, 'least_share': self.least_share}

    def propose(self, generation: int, history: Sequence[Candidate], rng: np.random.Generator) -> list[Proposal]:
        """Random architectures, then the better ones of the round before."""
        share = float(self.factor) ** (generation + 1 - self.generations)
        if generation:
            before = [candidate for candidate in history if candidate.generation == generation - 1]
            before.sort(key=lambda c: (-c.score, c.cost['macs'], c.id))
            return [Proposal(c.arch, (c.id,), share) for c in before[: self._size(generation)]]
        return [Proposal(arch, share=share) for arch in self.feasible.draw_several(self.num_candidates, rng)]
