"""NSGA-II by pymoo: evolve the front of score and cost (Deb et al., 2002; the search of ViTAS)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from ...errors import VitnasError
from ...registry import ALGORITHMS
from ...spaces import Arch
from ...utils import checks
from ..arguments import check_chances, check_cost, check_counts, check_priced
from ..breeding import ATTEMPTS
from ..candidate import Candidate, ranked
from ..feasible import FeasibleSpace
from .base import Proposal, SearchAlgorithm


@ALGORITHMS.register_module()
@dataclass
class NSGA2(SearchAlgorithm):
    """NSGA-II on score and cost, with the numbers of ViTAS (App. A.3).

    The first generation is random. After each one, the best of the population and its children survive: those of lower
    non-dominated rank and, within a rank, those in less crowded places. The best survivors compete in pairs to become
    parents; their children are crossed, then mutated. Ranks, crowding, survival and tournaments are pymoo's; crossover
    and mutation are the space's own.

    No architecture is scored twice: choices of absent last blocks make no difference. If blocks may be absent at any
    place (``optional``), [A, null, B] and [A, B] are the same network when extracted. But they use other weights of the
    supernet, so they are two candidates. Each wanted child gets at most ten attempts to be new and within the limits.
    Random architectures fill the remaining places.

    ``pareto.json`` is the front of score and ``cost``. The candidate with the best score wins, as in the paper.

    Args:
        population: Candidates per generation, and survivors of each. Defaults to 50.
        parents: Number of survivors that can be parents. Defaults to 20. None: all, as in ViTAS's code and
            in NSGA-II's paper.
        generations: Generations, the random one included. Defaults to 40.
        cost: The objective besides the score: ``'macs'``, ``'params'`` or, with a ``latency_table``, ``'latency'``.
            ``'latency'`` also serves for a throughput, its inverse: both have the same front. None: the score alone,
            within the limits, as in ViTAS's code. Defaults to 'macs'.
        crossover_prob: Probability that a child has two parents. Defaults to 0.9, as in pymoo.
        mutation_prob: One probability to redraw a dimension, or one per kind of dimension, as
            :meth:`~vitnas_core.spaces.SearchSpace.mutate` takes it. Defaults to None: one over the number of
            dimensions that have a choice, as in pymoo.

    Raises:
        VitnasError: A number is out of range, the cost is unknown, or pymoo is missing.
    """

    population: int = 50
    parents: int | None = 20
    generations: int = 40
    cost: str | None = 'macs'
    crossover_prob: float = 0.9
    mutation_prob: float | Mapping[str, float] | None = None

    extendable = ('generations',)
    journal_name = 'NSGA2SearchLoop'

    def __post_init__(self) -> None:
        check_counts(self, population=1, generations=1)
        if self.parents is not None:
            checks.whole('parents', self.parents)
        if self.cost is not None:
            check_cost(self.cost)
        checks.rate('crossover_prob', self.crossover_prob)
        _pymoo()

    def setup(self, space: FeasibleSpace) -> None:
        """Start a search; refuse unknown mutation probabilities, and latency without a latency table."""
        super().setup(space)
        choices = sum(len(dim.options) > 1 for dim in space.space.dimensions)
        self.chances = 1 / max(1, choices) if self.mutation_prob is None else self.mutation_prob
        check_chances(self.chances, space)
        check_priced(self.cost, space)
        self._pool: list[Candidate] = []

    @property
    def max_rounds(self) -> int:
        """Number of generations."""
        return self.generations

    @property
    def max_candidates(self) -> int:
        """A population per generation."""
        return self.generations * self.population

    @property
    def front_cost(self) -> str:
        """The objective besides the score; MACs if there is none."""
        return self.cost or 'macs'

    def settings(self) -> dict[str, Any]:
        """The settings, with the actual mutation probabilities."""
        return {**super().settings(), 'mutation_prob': self.chances}

    def ask(self, rng: np.random.Generator) -> list[Proposal]:
        """Make children of the survivors, then draw random architectures up to the population."""
        seen = {candidate.arch for candidate in self.history}
        most = self.population if self.parents is None else min(self.parents, self.population)
        made = self._children(self._best(most), seen, rng)
        drawn = self.space.draw_several(self.population - len(made), rng, seen | made.keys())
        return [*made.values(), *(Proposal(arch) for arch in drawn)]

    def tell(self, candidates: Sequence[Candidate]) -> None:
        """Let the survivors and their children compete for places in the next population."""
        self._pool = self.survivors() + sorted(ranked(candidates), key=lambda candidate: candidate.id)
        super().tell(candidates)

    def survivors(self) -> list[Candidate]:
        """Population at the start of the next generation; its parents are among them."""
        return _pymoo().members(self._best(self.population))

    def _best(self, count: int) -> Any:
        """Best of the survivors and their children, as pymoo's population; the round breaks ties."""
        return _pymoo().survivors(self._pool, self.cost, count, np.random.default_rng(self.round))

    def _children(self, parents: Any, seen: set[Arch], rng: np.random.Generator) -> dict[Arch, Proposal]:
        """Make a population of new children within the limits; fewer if ten times the attempts do not suffice."""
        made: dict[Arch, Proposal] = {}
        for _ in range(ATTEMPTS if len(parents) else 0):
            for one, two in _pymoo().pairs(parents, self.population, rng):
                child = self._child(one, two, rng)
                if child.arch not in seen and child.arch not in made and child.arch in self.space:
                    made[child.arch] = child
                if len(made) == self.population:
                    return made
        return made

    def _child(self, one: Candidate, two: Candidate, rng: np.random.Generator) -> Proposal:
        space = self.space.space
        if one is two or rng.random() >= self.crossover_prob:
            return Proposal(space.mutate(one.arch, self.chances, rng), (one.id,))
        crossed = space.cross(one.arch, two.arch, rng)
        return Proposal(space.mutate(crossed, self.chances, rng), (one.id, two.id))


def _pymoo() -> ModuleType:
    """Import our functions on pymoo late: only this search should take the half second.

    Raises:
        VitnasError: pymoo is not installed, or too old.
    """
    try:
        from .. import crowding
    except ImportError as err:
        raise VitnasError(
            f'vitnas.NSGA2 needs pymoo 0.6.1.6 or later: pip install "pymoo>=0.6.1.6" (it says: {err})'
        ) from None
    return crowding
