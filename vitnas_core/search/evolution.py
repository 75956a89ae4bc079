"""Evolution: mutations and crossovers of the best architectures so far (AutoFormer, S3, ViT-ResNAS)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..registry import LOOPS
from ..spaces import Arch
from .arguments import check_counts
from .breeding import breed
from .candidate import Candidate, ranked
from .loops import Proposal, SearchLoop
from .predictor import LEAST, ForestPredictor, PredictorValidation, Screening

AUTOFORMER_PROB = {'global': 0.4, 'stage': 0.4, 'depth': 0.4, 'block': 0.2}
"""Chance to redraw a dimension, by its kind, as in AutoFormer's code (S3's paper: stage and depth 0.2, block 0.4)."""


@LOOPS.register_module()
class EvolutionSearchLoop(SearchLoop):
    """The evolutionary search of AutoFormer, S3 and ViT-ResNAS.

    The first generation is random. Each later one has mutations and crossovers of the best candidates
    ever seen, with at most ten attempts for each that is wanted, and is filled up with random architectures.

    Args:
        population: Candidates of a generation. Defaults to 50.
        initial: Candidates of the first, random generation. Defaults to None: as many as of any other.
        parents: How many of the best ones are parents. Defaults to 10.
        generations: Generations, the random one included. Defaults to 20.
        mutations: Mutations wanted in a generation. Defaults to 25.
        crossovers: Crossovers wanted in a generation. Defaults to 25.
        mutation_prob: One chance to redraw a dimension, or one a kind of dimension, as
            :meth:`~vitnas_core.spaces.SearchSpace.mutate` takes it. Defaults to None: AutoFormer's.
        predictor: ``dict(trees=100, oversample=4)``: from the second generation on make so many times the wanted
            children and keep those that a :class:`~vitnas_core.search.ForestPredictor`, fitted to the candidates
            so far, predicts to be the best. Defaults to None: every child is evaluated, as published.
        **kwargs: Arguments of :class:`SearchLoop`.

    Raises:
        VitnasError: A number is out of range.
    """

    def __init__(
        self,
        *args: Any,
        population: int = 50,
        initial: int | None = None,
        parents: int = 10,
        generations: int = 20,
        mutations: int = 25,
        crossovers: int = 25,
        mutation_prob: float | Mapping[str, float] | None = None,
        predictor: Mapping[str, int] | None = None,
        **kwargs: Any,
    ) -> None:
        self.initial = population if initial is None else initial
        check_counts(
            ('population', population, 1),
            ('initial', self.initial, 1),
            ('parents', parents, 1),
            ('generations', generations, 1),
            ('mutations', mutations, 0),
            ('crossovers', crossovers, 0),
        )
        self.population, self.parents, self._generations = population, parents, generations
        self.mutations, self.crossovers = mutations, crossovers
        self.mutation_prob = AUTOFORMER_PROB if mutation_prob is None else mutation_prob
        self.screening = None if predictor is None else Screening.read(predictor)
        self.validation: PredictorValidation | None = None
        super().__init__(*args, **kwargs)
        self.space.mutate(self.space.smallest(), self.mutation_prob, np.random.default_rng(0))  # checks the chances

    @property
    def generations(self) -> int:
        """How many generations there are, the random one included."""
        return self._generations

    @property
    def num_proposals(self) -> int:
        """A population in every generation but the first."""
        return self.initial + (self.generations - 1) * self.population

    def settings(self) -> dict[str, Any]:
        """Everything but the number of generations."""
        names = ['population', 'parents', 'mutations', 'crossovers', 'mutation_prob']
        names += ['initial'] if self.initial != self.population else []  # journals of before do not name it
        used = {'predictor': dataclasses.asdict(self.screening)} if self.screening is not None else {}  # likewise
        return {**{name: getattr(self, name) for name in names}, **used}

    def floor(self, history: Sequence[Candidate]) -> float | None:
        """The score of the last parent."""
        best = ranked(history)
        return best[self.parents - 1].score if len(best) >= self.parents else None

    def remarks(self) -> dict[str, str]:
        """How good the predictor was, the last time."""
        return {} if self.validation is None else {'prediction': str(self.validation)}

    def propose(self, generation: int, history: Sequence[Candidate], rng: np.random.Generator) -> list[Proposal]:
        """Mutations, crossovers, then random architectures up to the population."""
        size = self.population if generation else self.initial
        seen = {candidate.arch for candidate in history}
        made = self._children(size, history, seen, rng)
        drawn = self.feasible.draw_several(size - len(made), rng, seen | {child.arch for child in made})
        return made + [Proposal(arch) for arch in drawn]

    def _children(
        self, size: int, history: Sequence[Candidate], seen: set[Arch], rng: np.random.Generator
    ) -> list[Proposal]:
        """At most ``size`` mutations and crossovers; with a predictor, those of many that it likes best."""
        best = ranked(history)
        parents, screening = best[: self.parents], self.screening if len(best) >= LEAST else None
        times = screening.oversample if screening is not None else 1
        made = breed(
            self.feasible, [parent.arch for parent in parents], mutations=times * self.mutations,
            crossovers=times * self.crossovers, prob=self.mutation_prob, seen=seen, rng=rng, most=times * size,
        )  # fmt: skip
        children = [Proposal(arch, tuple(parents[i].id for i in numbers)) for arch, numbers in made.items()]
        if screening is None:
            return children
        predictor = ForestPredictor(self.space, screening.trees, seed=int(rng.integers(2**32)))
        self.validation = predictor.fit(history)
        order = np.argsort(-predictor.predict(list(made)), kind='stable')
        return [children[i] for i in order[: min(size, self.mutations + self.crossovers)]]
