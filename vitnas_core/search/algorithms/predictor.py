"""Predictor-guided search: score some, fit a predictor, evolve on predictions, score their front (NASViT)."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...registry import ALGORITHMS
from ...spaces import Arch
from ..arguments import check_chances, check_cost, check_counts, check_priced
from ..breeding import breed
from ..candidate import Candidate, ranked
from ..feasible import FeasibleSpace
from ..pareto import best_layers, non_dominated, spread
from ..predictor import LEAST, ForestPredictor, PredictorValidation
from .base import Proposal, SearchAlgorithm


@ALGORITHMS.register_module()
@dataclass
class Predictor(SearchAlgorithm):
    """NASViT's search of the accuracy-cost front (App. C.1, Algorithm 2).

    The first round scores random architectures and fits a random forest to them. An evolution then looks for the front
    of *predicted* score and cost. The parents of each of its rounds are the non-dominated architectures so far, then
    the non-dominated of the others, until there are enough; their mutations and crossovers are predicted. The second
    and last round of the search scores the predicted front. The search writes ``predictor.json`` and
    ``predictor.png`` besides the usual files; ``pareto.json`` is the front of score and ``cost``.

    Args:
        num_samples: Number of random architectures to score. Defaults to 1024.
        num_final: Largest number of architectures of the predicted front to score, spread evenly over the cost, both
            ends included; those scored before do not count. Defaults to 128.
        cost: ``'macs'``, ``'params'`` or, with a ``latency_table``, ``'latency'``. Defaults to 'macs'.
        trees: Trees of the forest. Defaults to 100.
        parents: Parents per round of the evolution. Defaults to 128.
        mutations: Mutations wanted per round. Defaults to 128.
        crossovers: Crossovers wanted per round. Defaults to 128.
        rounds: Rounds of the evolution; it ends early when a round finds nothing new. Defaults to 40.
        mutation_prob: One probability to redraw a dimension, or one per kind of dimension, as
            :meth:`~vitnas_core.spaces.SearchSpace.mutate` takes it. Defaults to 0.1.

    Raises:
        VitnasError: A number is out of range, or the cost is unknown.
    """

    num_samples: int = 1024
    num_final: int = 128
    cost: str = 'macs'
    trees: int = 100
    parents: int = 128
    mutations: int = 128
    crossovers: int = 128
    rounds: int = 40
    mutation_prob: float | Mapping[str, float] = 0.1

    journal_name = 'PredictorSearchLoop'
    max_rounds = 2

    def __post_init__(self) -> None:
        check_counts(self, num_samples=LEAST, num_final=2, parents=1, mutations=0, crossovers=0, rounds=1, trees=1)
        check_cost(self.cost)

    def setup(self, space: FeasibleSpace) -> None:
        """Start a search; refuse unknown mutation probabilities, and latency without a latency table."""
        super().setup(space)
        check_chances(self.mutation_prob, space)
        check_priced(self.cost, space)
        self.forest: ForestPredictor | None = None
        self.validation: PredictorValidation | None = None
        self.num_predicted = 0

    @property
    def max_candidates(self) -> int:
        """Number of random architectures and of the largest front."""
        return self.num_samples + self.num_final

    @property
    def front_cost(self) -> str:
        """Cost of the predicted front."""
        return self.cost

    def ask(self, rng: np.random.Generator) -> list[Proposal]:
        """Draw random architectures, then propose the predicted front."""
        if self.round == 0:
            return [Proposal(arch) for arch in self.space.draw_several(self.num_samples, rng)]
        self.forest = ForestPredictor(self.space.space, self.trees, seed=int(rng.integers(2**32)))
        self.validation = self.forest.fit(self.history)
        front = self._evolve(self.forest, [candidate.arch for candidate in self.history], rng)
        self.say(f'{self.remarks()["prediction"]}; {len(front)} of them are evaluated')
        return [Proposal(arch) for arch in front]

    def _evolve(self, forest: ForestPredictor, known: Sequence[Arch], rng: np.random.Generator) -> list[Arch]:
        """Return the predicted front, cheapest first, without architectures that are already scored."""
        archs, scores, costs = list(known), forest.predict(known), self._costs(known)
        seen = set(archs)
        for _ in range(self.rounds):
            parents = [archs[i] for i in best_layers(scores, costs, self.parents)]
            made = breed(
                self.space, parents, mutations=self.mutations, crossovers=self.crossovers,
                prob=self.mutation_prob, seen=seen, rng=rng,
            )  # fmt: skip
            if not made:
                break
            children = list(made)
            archs += children
            seen |= made.keys()
            scores = np.concatenate([scores, forest.predict(children)])
            costs = np.concatenate([costs, self._costs(children)])
        self.num_predicted = len(archs)
        front = non_dominated(scores, costs)
        fresh = front[front >= len(known)]
        return [archs[i] for i in fresh[spread(costs[fresh], self.num_final)]]

    def _costs(self, archs: Sequence[Arch]) -> np.ndarray:
        return np.array([getattr(self.space.price(arch), self.cost) for arch in archs], dtype=float)

    def remarks(self) -> dict[str, str]:
        """Quality of the forest, and number of its predictions."""
        if self.validation is None:
            return {}
        return {'prediction': f'{self.validation}, {self.num_predicted:,} architectures predicted'}

    def texts(self) -> dict[str, str]:
        """``predictor.json``: the same as data."""
        if self.validation is None:
            return {}
        data = {**dataclasses.asdict(self.validation), 'num_predicted': self.num_predicted}
        return {'predictor.json': json.dumps(data, indent=1) + '\n'}

    def figures(self, metric: str) -> dict[str, Any]:
        """``predictor.png``: measured and predicted scores of held-out candidates and of the front."""
        if self.forest is None:
            return {}
        from ...visualization import draw_predictor  # matplotlib is not needed to search

        final = [candidate for candidate in ranked(self.history) if candidate.generation == 1]
        held_out, scored = (self._pairs(self.forest, candidates) for candidates in (self.forest.held_out, final))
        return {'predictor.png': draw_predictor(held_out, scored, title=str(self.validation), metric=metric)}

    @staticmethod
    def _pairs(forest: ForestPredictor, candidates: Sequence[Candidate]) -> list[tuple[float, float]]:
        """Pairs of measured and predicted scores."""
        predicted = forest.predict([candidate.arch for candidate in candidates])
        return [(candidate.score, float(score)) for candidate, score in zip(candidates, predicted)]
