"""NSGA-II by pymoo: evolve the front of score and cost (Deb et al., 2002; the search of ViTAS)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from ..errors import VitnasError
from ..registry import LOOPS
from ..spaces import Arch
from .arguments import check_cost, check_counts, check_measured
from .breeding import ATTEMPTS
from .candidate import Candidate, ranked
from .loops import Proposal, SearchLoop


@LOOPS.register_module()
class NSGA2SearchLoop(SearchLoop):
    """NSGA-II on score and cost, with the numbers of ViTAS (App. A.3).

    The first generation is random. After each, the best of the population and its children survive: those of the
    lower non-dominated rank and, within a rank, those in the less crowded places. The best of the survivors
    compete in pairs for being parents, and their children are crossed, then mutated. Ranks, crowding, survival
    and tournaments are pymoo's. Crossover and mutation are the space's own, for which blocks that are absent behind
    the last one, and their choices, make no difference: no architecture is evaluated twice. Where blocks may be absent
    at any place (``optional``), [A, null, B] and [A, B] are one network when they stand alone, but use other weights
    of the supernet, and are candidates of their own. There are at most ten attempts for each child that is wanted, new
    and within the limits; places that stay free are filled with random architectures.

    ``pareto.json`` is the front of ``cost``. The best score is the winner, as in the paper.

    Args:
        population: Candidates of a generation, and survivors of each. Defaults to 50.
        parents: How many of the survivors can be parents. Defaults to 20. None: all, as in ViTAS's code and
            in NSGA-II's paper.
        generations: Generations, the random one included. Defaults to 40.
        cost: The objective besides the score: ``'macs'``, ``'params'`` or, where a ``latency_table`` is given,
            ``'latency'``; a throughput is the inverse of a latency, so the networks that are fastest by one are so by
            the other. None: the score alone, within the limits, as in ViTAS's code. Defaults to 'macs'.
        crossover_prob: Chance that a child has two parents. Defaults to 0.9, as in pymoo.
        mutation_prob: One chance to redraw a dimension, or one a kind of dimension, as
            :meth:`~vitnas_core.spaces.SearchSpace.mutate` takes it. Defaults to None: one over the number of
            dimensions that have a choice, as in pymoo.
        **kwargs: Arguments of :class:`SearchLoop`, without ``racing``.

    Raises:
        VitnasError: A number is out of range, the cost is not known, racing is asked for, or there is no pymoo.
    """

    def __init__(
        self,
        *args: Any,
        population: int = 50,
        parents: int | None = 20,
        generations: int = 40,
        cost: str | None = 'macs',
        crossover_prob: float = 0.9,
        mutation_prob: float | Mapping[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        check_counts(
            ('population', population, 1),
            ('parents', population if parents is None else parents, 1),
            ('generations', generations, 1),
        )
        if cost is not None:
            check_cost(cost)
            self.front_cost = cost
        if type(crossover_prob) not in (int, float) or not 0 <= crossover_prob <= 1:
            raise VitnasError(f'`crossover_prob` should be from 0 to 1, but got {crossover_prob!r}')
        if kwargs.get('racing') is not None:
            raise VitnasError('`racing` should be left out of vitnas.NSGA2SearchLoop, which ranks whole scores')
        _pymoo()
        self.population, self.parents, self._generations, self.cost = population, parents, generations, cost
        self.crossover_prob = crossover_prob
        self.mutation_prob: Any = mutation_prob  # a chance as soon as the space is known
        super().__init__(*args, **kwargs)

    def prepare(self) -> None:
        """Refuse chances that are none, and a latency that nothing gives."""
        if self.mutation_prob is None:
            self.mutation_prob = 1 / max(1, sum(len(dim.options) > 1 for dim in self.space.dimensions))
        self.space.mutate(self.space.smallest(), self.mutation_prob, np.random.default_rng(0))
        check_measured(self.cost, self.latency_table)

    @property
    def generations(self) -> int:
        """How many generations there are, the random one included."""
        return self._generations

    @property
    def num_proposals(self) -> int:
        """A population in every generation."""
        return self.generations * self.population

    def settings(self) -> dict[str, Any]:
        """Everything but the number of generations."""
        names = ['population', 'parents', 'cost', 'crossover_prob', 'mutation_prob']
        return {name: getattr(self, name) for name in names}

    def propose(self, generation: int, history: Sequence[Candidate], rng: np.random.Generator) -> list[Proposal]:
        """Children of the survivors, then random architectures up to the population."""
        seen = {candidate.arch for candidate in history}
        most = self.population if self.parents is None else min(self.parents, self.population)
        parents = self._best(most, generation, self._pool(generation, history))
        made = self._children(parents, seen, rng)
        drawn = self.feasible.draw_several(self.population - len(made), rng, seen | made.keys())
        return [*made.values(), *(Proposal(arch) for arch in drawn)]

    def survivors(self, generation: int, history: Sequence[Candidate]) -> list[Candidate]:
        """The population that a generation begins with; its parents are among them.

        Args:
            generation: Its number, from 0, when there is none yet.
            history: The candidates of all generations before it, at least.
        """
        return _pymoo().members(self._best(self.population, generation, self._pool(generation, history)))

    def _pool(self, generation: int, history: Sequence[Candidate]) -> list[Candidate]:
        """Who competes for a place in the population that a generation begins with: the one before, and its children.

        Every survival until then happens again, so that nothing but the history has to be kept.
        """
        pool: list[Candidate] = []
        scored = sorted(ranked(history), key=lambda candidate: candidate.id)
        for number in range(generation):
            alive = _pymoo().members(self._best(self.population, number, pool))
            pool = alive + [candidate for candidate in scored if candidate.generation == number]
        return pool

    def _best(self, count: int, generation: int, pool: Sequence[Candidate]) -> Any:
        """Some of a pool, as pymoo's population; ties are broken alike whenever a survival happens again."""
        return _pymoo().survivors(pool, self.cost, count, np.random.default_rng(generation))

    def _children(self, parents: Any, seen: set[Arch], rng: np.random.Generator) -> dict[Arch, Proposal]:
        """A population of new ones within the limits; fewer where ten times the attempts do not give them."""
        made: dict[Arch, Proposal] = {}
        for _ in range(ATTEMPTS if len(parents) else 0):
            for one, two in _pymoo().pairs(parents, self.population, rng):
                child = self._child(one, two, rng)
                if child.arch not in seen and child.arch not in made and child.arch in self.feasible:
                    made[child.arch] = child
                if len(made) == self.population:
                    return made
        return made

    def _child(self, one: Candidate, two: Candidate, rng: np.random.Generator) -> Proposal:
        if one is two or rng.random() >= self.crossover_prob:
            return Proposal(self.space.mutate(one.arch, self.mutation_prob, rng), (one.id,))
        crossed = self.space.cross(one.arch, two.arch, rng)
        return Proposal(self.space.mutate(crossed, self.mutation_prob, rng), (one.id, two.id))


def _pymoo() -> ModuleType:
    """Our functions on pymoo, imported late: half a second that only this search should take.

    Raises:
        VitnasError: It is not installed, or too old.
    """
    try:
        from . import crowding
    except ImportError as err:
        raise VitnasError(
            f'vitnas.NSGA2SearchLoop needs pymoo 0.6.1.6 or later: pip install "pymoo>=0.6.1.6" (it says: {err})'
        ) from None
    return crowding
