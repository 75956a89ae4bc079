"""Predictor-guided search: evaluate some, learn to predict, evolve on predictions, evaluate their front (NASViT)."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import VitnasError
from ..registry import LOOPS
from ..spaces import Arch
from ..utils.fileio import atomic_write
from .arguments import check_cost, check_counts, check_measured
from .breeding import breed
from .candidate import Candidate, ranked
from .loops import Proposal, SearchLoop
from .pareto import best_layers, non_dominated, spread
from .predictor import LEAST, ForestPredictor, PredictorValidation, check_trees


@LOOPS.register_module()
class PredictorSearchLoop(SearchLoop):
    """NASViT's search of the accuracy-cost front (App. C.1, Algorithm 2).

    The first generation evaluates random architectures, to which a random forest is fitted. An evolution then
    looks for the front of *predicted* score and cost: in each round the parents are the non-dominated of all
    architectures so far, then the non-dominated of the others, until there are enough, and their mutations and
    crossovers are predicted. The second and last generation evaluates the predicted front. It leaves
    ``predictor.json`` and ``predictor.png`` besides what every search leaves; ``pareto.json`` is of ``cost``.

    Args:
        num_samples: Random architectures that are evaluated. Defaults to 1024.
        num_final: How many of the predicted front are evaluated at most, spread evenly over the cost, both ends
            included; those that already are do not count. Defaults to 128.
        cost: ``'macs'``, ``'params'`` or, where a ``latency_table`` is given, ``'latency'``. Defaults to 'macs'.
        trees: Trees of the forest. Defaults to 100.
        parents: How many architectures are parents of a round. Defaults to 128.
        mutations: Mutations wanted in a round. Defaults to 128.
        crossovers: Crossovers wanted in a round. Defaults to 128.
        rounds: Rounds of the evolution; it ends before when a round finds nothing new. Defaults to 40.
        mutation_prob: One chance to redraw a dimension, or one a kind of dimension, as
            :meth:`~vitnas_core.spaces.SearchSpace.mutate` takes it. Defaults to 0.1.
        **kwargs: Arguments of :class:`SearchLoop`, without ``racing``.

    Raises:
        VitnasError: A number is out of range, the cost is not known, or racing is asked for.
    """

    def __init__(
        self,
        *args: Any,
        num_samples: int = 1024,
        num_final: int = 128,
        cost: str = 'macs',
        trees: int = 100,
        parents: int = 128,
        mutations: int = 128,
        crossovers: int = 128,
        rounds: int = 40,
        mutation_prob: float | Mapping[str, float] = 0.1,
        **kwargs: Any,
    ) -> None:
        check_counts(
            ('num_samples', num_samples, LEAST),
            ('num_final', num_final, 2),
            ('parents', parents, 1),
            ('mutations', mutations, 0),
            ('crossovers', crossovers, 0),
            ('rounds', rounds, 1),
        )
        check_trees(trees)
        check_cost(cost)
        if kwargs.get('racing') is not None:
            raise VitnasError(
                '`racing` should be left out of vitnas.PredictorSearchLoop, which learns from whole scores'
            )
        self.num_samples, self.num_final, self.front_cost, self.trees = num_samples, num_final, cost, trees
        self.parents, self.mutations, self.crossovers, self.rounds = parents, mutations, crossovers, rounds
        self.mutation_prob = mutation_prob
        self.predictor: ForestPredictor | None = None
        self.validation: PredictorValidation | None = None
        self.num_predicted = 0
        super().__init__(*args, **kwargs)

    def prepare(self) -> None:
        """Refuse chances that are none, and a latency that nothing gives."""
        self.space.mutate(self.space.smallest(), self.mutation_prob, np.random.default_rng(0))
        check_measured(self.front_cost, self.latency_table)

    @property
    def generations(self) -> int:
        """Two: random architectures, and the predicted front."""
        return 2

    @property
    def num_proposals(self) -> int:
        """The random ones and the largest number of the front."""
        return self.num_samples + self.num_final

    def settings(self) -> dict[str, Any]:
        """Everything: each of them changes what is predicted or taken."""
        names = ['num_samples', 'num_final', 'trees', 'parents', 'mutations', 'crossovers', 'rounds', 'mutation_prob']
        return {'cost': self.front_cost, **{name: getattr(self, name) for name in names}}

    def remarks(self) -> dict[str, str]:
        """How good the predictor is, and how often it was asked."""
        if self.validation is None:
            return {}
        return {'prediction': f'{self.validation}, {self.num_predicted:,} architectures predicted'}

    def propose(self, generation: int, history: Sequence[Candidate], rng: np.random.Generator) -> list[Proposal]:
        """Random architectures, then the predicted front."""
        if generation == 0:
            return [Proposal(arch) for arch in self.feasible.draw_several(self.num_samples, rng)]
        self.predictor = ForestPredictor(self.space, self.trees, seed=int(rng.integers(2**32)))
        self.validation = self.predictor.fit(history)
        front = self._evolve(self.predictor, [c.arch for c in history], rng)
        self.runner.logger.info(f'Search: {self.remarks()["prediction"]}; {len(front)} of them are evaluated')
        return [Proposal(arch) for arch in front]

    def _evolve(self, predictor: ForestPredictor, known: Sequence[Arch], rng: np.random.Generator) -> list[Arch]:
        """The predicted front, cheapest first, without what is evaluated already."""
        archs, scores, costs = list(known), predictor.predict(known), self._costs(known)
        seen = set(archs)
        for _ in range(self.rounds):
            parents = [archs[i] for i in best_layers(scores, costs, self.parents)]
            made = breed(
                self.feasible, parents, mutations=self.mutations, crossovers=self.crossovers,
                prob=self.mutation_prob, seen=seen, rng=rng,
            )  # fmt: skip
            if not made:
                break
            children = list(made)
            archs += children
            seen |= made.keys()
            scores = np.concatenate([scores, predictor.predict(children)])
            costs = np.concatenate([costs, self._costs(children)])
        self.num_predicted = len(archs)
        front = non_dominated(scores, costs)
        fresh = front[front >= len(known)]
        return [archs[i] for i in fresh[spread(costs[fresh], self.num_final)]]

    def _costs(self, archs: Sequence[Arch]) -> np.ndarray:
        return np.array([getattr(self.price(arch), self.front_cost) for arch in archs], dtype=float)

    def write_pictures(self, baselines: Sequence[tuple[str, float, Mapping[str, float]]] = ()) -> None:
        """Write also ``predictor.json`` and ``predictor.png``."""
        super().write_pictures(baselines)
        if self.predictor is None or self.validation is None:
            return
        from ..visualization import draw_predictor, save_png  # matplotlib is not needed to search

        folder = Path(self.runner.work_dir)
        figures = {**dataclasses.asdict(self.validation), 'num_predicted': self.num_predicted}
        atomic_write(folder / 'predictor.json', json.dumps(figures, indent=1) + '\n')
        final = [candidate for candidate in ranked(self.history) if candidate.generation == 1]
        figure = draw_predictor(
            self._pairs(self.predictor.held_out),
            self._pairs(final),
            title=str(self.validation),
            metric=self.scorer.metric or 'score',
        )
        save_png(figure, folder / 'predictor.png')

    def _pairs(self, candidates: Sequence[Candidate]) -> list[tuple[float, float]]:
        """Measured and predicted scores."""
        assert self.predictor is not None
        predicted = self.predictor.predict([candidate.arch for candidate in candidates])
        return [(candidate.score, float(score)) for candidate, score in zip(candidates, predicted)]
