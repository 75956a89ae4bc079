"""Evolution: mutations and crossovers of the best architectures so far (AutoFormer, S3, ViT-ResNAS)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...registry import ALGORITHMS
from ...spaces import Arch
from ..arguments import check_chances, check_counts
from ..breeding import breed
from ..candidate import ranked
from ..feasible import FeasibleSpace
from ..predictor import LEAST, ForestPredictor, PredictorValidation, Screening
from .base import Proposal, SearchAlgorithm

PUBLISHED_PROB = {'global': 0.4, 'stage': 0.4, 'depth': 0.4, 'block': 0.2}
"""Chance to redraw a dimension, by its kind, as in AutoFormer's code (S3's paper: stage and depth 0.2, block 0.4)."""


@ALGORITHMS.register_module()
@dataclass
class Evolution(SearchAlgorithm):
    """The evolutionary search of AutoFormer, S3 and ViT-ResNAS.

    The first generation is random. Each later one has mutations and crossovers of the best candidates ever seen, with
    at most ten attempts for each that is wanted. Random architectures fill it up.

    Args:
        population: Candidates per generation. Defaults to 50.
        initial: Candidates of the first, random generation. Defaults to None: as many as in the others.
        parents: Number of best candidates that are parents. Defaults to 10.
        generations: Generations, the random one included. Defaults to 20.
        mutations: Mutations wanted per generation. Defaults to 25.
        crossovers: Crossovers wanted per generation. Defaults to 25.
        mutation_prob: One probability to redraw a dimension, or one per kind of dimension, as
            :meth:`~vitnas_core.spaces.SearchSpace.mutate` takes it. Defaults to None: AutoFormer's.
        predictor: ``dict(trees=100, oversample=4)``: from the second generation on, make ``oversample`` times the
            wanted children. Keep those with the best predictions of a :class:`~vitnas_core.search.ForestPredictor`,
            fitted to the candidates so far. Defaults to None: every child is scored, as published.
    Raises:
        VitnasError: A number is out of range.
    """

    population: int = 50
    initial: int | None = None
    parents: int = 10
    generations: int = 20
    mutations: int = 25
    crossovers: int = 25
    mutation_prob: float | Mapping[str, float] | None = None
    predictor: Mapping[str, int] | None = None

    extendable = ('generations',)
    journal_name = 'EvolutionSearchLoop'

    def __post_init__(self) -> None:
        check_counts(self, population=1, initial=1, parents=1, generations=1, mutations=0, crossovers=0)
        self.initial = None if self.initial == self.population else self.initial  # equal searches have equal journals
        self.chances = PUBLISHED_PROB if self.mutation_prob is None else self.mutation_prob
        self.screening = None if self.predictor is None else Screening.read(self.predictor)

    def setup(self, space: FeasibleSpace) -> None:
        """Start a search; refuse mutation probabilities that the space does not know."""
        super().setup(space)
        self.validation: PredictorValidation | None = None
        check_chances(self.chances, space)

    @property
    def max_rounds(self) -> int:
        """Number of generations."""
        return self.generations

    @property
    def max_candidates(self) -> int:
        """A population per generation; the first one may have another size."""
        return (self.initial or self.population) + (self.generations - 1) * self.population

    def settings(self) -> dict[str, Any]:
        """The settings, with the actual mutation probabilities and predictor."""
        screening = None if self.screening is None else dataclasses.asdict(self.screening)
        return {**super().settings(), 'mutation_prob': self.chances, 'predictor': screening}

    def floor(self) -> float | None:
        """Score of the worst parent."""
        best = ranked(self.history)
        return best[self.parents - 1].score if len(best) >= self.parents else None

    def remarks(self) -> dict[str, str]:
        """Quality of the predictor in its last validation."""
        return {} if self.validation is None else {'prediction': str(self.validation)}

    def ask(self, rng: np.random.Generator) -> list[Proposal]:
        """Make mutations and crossovers, then draw random architectures up to the population."""
        size = self.population if self.round else self.initial or self.population
        seen = {candidate.arch for candidate in self.history}
        made = self._children(size, seen, rng)
        drawn = self.space.draw_several(size - len(made), rng, seen | {child.arch for child in made})
        return made + [Proposal(arch) for arch in drawn]

    def _children(self, size: int, seen: set[Arch], rng: np.random.Generator) -> list[Proposal]:
        """Make at most ``size`` mutations and crossovers; with a predictor, more of them, and keep its best."""
        best = ranked(self.history)
        parents, screening = best[: self.parents], self.screening if len(best) >= LEAST else None
        times = screening.oversample if screening is not None else 1
        made = breed(
            self.space, [parent.arch for parent in parents], mutations=times * self.mutations,
            crossovers=times * self.crossovers, prob=self.chances, seen=seen, rng=rng, most=times * size,
        )  # fmt: skip
        children = [Proposal(arch, tuple(parents[i].id for i in numbers)) for arch, numbers in made.items()]
        if screening is None:
            return children
        predictor = ForestPredictor(self.space.space, screening.trees, seed=int(rng.integers(2**32)))
        self.validation = predictor.fit(self.history)
        order = np.argsort(-predictor.predict(list(made)), kind='stable')
        return [children[i] for i in order[: min(size, self.mutations + self.crossovers)]]
