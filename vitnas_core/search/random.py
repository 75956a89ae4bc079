"""Random search: the baseline that every other search has to beat."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import VitnasError
from ..registry import LOOPS
from .candidate import Candidate, ranked
from .loops import Proposal, SearchLoop

_GENERATION = 50
"""Candidates between two lines of the log; as many as a generation of the published evolution."""


@LOOPS.register_module()
class RandomSearchLoop(SearchLoop):
    """Evaluate random architectures within the limits, all different.

    Args:
        num_candidates: How many. A finished search goes on when it is started again with more.
        **kwargs: Arguments of :class:`SearchLoop`.

    Raises:
        VitnasError: ``num_candidates`` is not a whole number of at least 1.
    """

    def __init__(self, *args: Any, num_candidates: int, **kwargs: Any) -> None:
        if type(num_candidates) is not int or num_candidates < 1:
            raise VitnasError(f'`num_candidates` should be a whole number of at least 1, but got {num_candidates!r}')
        self.num_candidates = num_candidates
        super().__init__(*args, **kwargs)

    @property
    def generations(self) -> int:
        """Candidates are drawn fifty at a time."""
        return math.ceil(self.num_candidates / _GENERATION)

    @property
    def num_proposals(self) -> int:
        """As many as asked for."""
        return self.num_candidates

    def settings(self) -> dict[str, Any]:
        """Nothing: more candidates can always be added."""
        return {}

    def floor(self, history: Sequence[Candidate]) -> float | None:
        """The best score so far."""
        best = ranked(history)
        return best[0].score if best else None

    def propose(self, generation: int, history: Sequence[Candidate], rng: np.random.Generator) -> list[Proposal]:
        """Random architectures."""
        size = min(_GENERATION, self.num_candidates - generation * _GENERATION)
        drawn = self.feasible.draw_several(size, rng, (candidate.arch for candidate in history))
        return [Proposal(arch) for arch in drawn]
