"""Scores of architectures with weights inherited from a supernet."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope

from vitnas_core.auto import fill_auto
from vitnas_core.backbones import elastic_backbone
from vitnas_core.checkpoints import load_weights
from vitnas_core.costs import Constraint, Cost
from vitnas_core.errors import VitnasError
from vitnas_core.evaluation import Job, Scorer
from vitnas_core.evaluation.pricing import resolve_pricing
from vitnas_core.search import Candidate, ranked
from vitnas_core.search.feasible import FeasibleSpace
from vitnas_core.spaces import Arch, SearchSpace

from .statistics import score_ranking
from .truth import Truth

_MARGIN = 0.05
"""Largest relative distance of a random architecture's MACs from the budget."""


class Supernet:
    """A trained supernet and the config of a search in it.

    Args:
        config: A search config: ``train_dataloader`` is the hold-out part, ``test_dataloader`` the test set, and
            ``train_cfg`` gives the metric, and the image size and classes for prices.
        checkpoint: Its weights.
    """

    def __init__(self, config: Config, checkpoint: str | Path) -> None:
        init_default_scope(config.get('default_scope', 'mmengine'))
        self.config = config
        model = copy.deepcopy(config.model)
        model.setdefault('data_preprocessor', config.get('data_preprocessor'))
        self.model = MODELS.build(fill_auto(model))
        load_weights(self.model, checkpoint)
        stated = (config.train_cfg.get('input_size'), config.train_cfg.get('num_classes'))
        self.pricing = resolve_pricing(config.model, config.train_dataloader, *stated)

    @property
    def space(self) -> SearchSpace:
        """Search space of the supernet."""
        return elastic_backbone(self.model).space

    def price(self, arch: Arch) -> Cost:
        """Return the cost of an architecture at the search's image size."""
        return elastic_backbone(self.model).price(arch, *self.pricing)

    def scorer(self, dataloader: Mapping[str, Any], raw: bool = False) -> Scorer:
        """Build a scorer of architectures on a set of images, which are decoded once.

        Args:
            dataloader: Config of the images.
            raw: Whether batch norms keep the statistics of the training. Defaults to False: if the search recalibrates
                them, they get the statistics of its hold-out images.
        """
        search = self.config.train_cfg
        batches = 0 if raw else search.get('recalibrate', 0)
        return Scorer.build(
            self.model,
            dataloader,
            search['evaluator'],
            metric=search.get('metric'),
            recalibrate=batches,
            calibration=self.config.train_dataloader if batches else None,
        )

    def draw(self, macs: float, num: int, rng: np.random.Generator) -> list[Arch]:
        """Draw different random architectures within 5 % of a number of MACs.

        Raises:
            InfeasibleError: The space has no such architecture.
        """
        limits = Constraint({'macs': (macs * (1 - _MARGIN), macs * (1 + _MARGIN))})
        feasible, drawn = FeasibleSpace(self.space, self.price, limits), set[Arch]()
        while len(drawn) < num and (arch := feasible.draw(rng, drawn)) is not None:
            drawn.add(arch)
        return sorted(drawn, key=Arch.digest)


def rank(supernet: Supernet, truth: Truth) -> tuple[dict[str, float], list[float]]:
    """Score a supernet's ranking on the hold-out images against the truth.

    Returns:
        The measures: the three correlations, Kendall's tau of the MACs alone (the least that a supernet must beat), and
        the number of architectures. Then the score of each architecture.
    """
    scorer = supernet.scorer(supernet.config.train_dataloader)
    scores = [scorer.score(Job(entry.arch)).value for entry in truth.archs]
    alone = score_ranking(truth.scores, [entry.macs for entry in truth.archs])
    return {**score_ranking(truth.scores, scores), 'macs_kendall': alone['kendall'], 'num': len(scores)}, scores


def ends(supernet: Supernet) -> dict[str, float]:
    """Test the largest and the smallest architecture, with inherited weights.

    Returns:
        ``largest`` and ``smallest`` as the search scores them. If the search recalibrates batch norms, also
        ``largest_raw`` and ``smallest_raw`` with the statistics of the training.
    """
    images = supernet.config.test_dataloader
    archs = {'largest': supernet.space.largest(), 'smallest': supernet.space.smallest()}
    raw = {}
    if supernet.config.train_cfg.get('recalibrate', 0):  # before the first recalibration, which changes them
        trained = supernet.scorer(images, raw=True)
        raw = {f'{name}_raw': trained.score(Job(arch)).value for name, arch in archs.items()}
    scorer = supernet.scorer(images)
    return {**{name: scorer.score(Job(arch)).value for name, arch in archs.items()}, **raw}


def compare(supernet: Supernet, searched: Arch, num_random: int, rng: np.random.Generator) -> dict[str, float]:
    """Test a searched architecture against others, all with inherited weights.

    Returns:
        Scores on the test images of ``searched``, ``random`` (the mean of several of the same MACs),
        ``largest`` and ``smallest``, the differences ``searched_random`` and ``searched_largest``, and MACs.
    """
    scorer = supernet.scorer(supernet.config.test_dataloader)
    cost = supernet.price(searched)
    drawn = supernet.draw(cost.macs, num_random, rng)
    scores = {
        'searched': scorer.score(Job(searched)).value,
        'random': float(np.mean([scorer.score(Job(arch)).value for arch in drawn])),
        'largest': scorer.score(Job(supernet.space.largest())).value,
        'smallest': scorer.score(Job(supernet.space.smallest())).value,
    }
    return {
        **scores,
        'searched_random': scores['searched'] - scores['random'],
        'searched_largest': scores['searched'] - scores['largest'],
        'searched_macs': cost.macs,
        'largest_macs': supernet.price(supernet.space.largest()).macs,
        'num_random': len(drawn),
    }


def under_budgets(supernet: Supernet, candidates: Sequence[Candidate], budgets: Sequence[float]) -> dict[str, float]:
    """Test the best candidate under each budget, and report the cost of finding them.

    Args:
        supernet: The supernet that was searched.
        candidates: Candidates of one search, or of several.
        budgets: Budgets in MACs.

    Returns:
        ``accuracy_<i>`` on the test images, ``holdout_<i>`` and ``macs_<i>`` of the best candidate under the i-th
        budget, from 1; ``evaluations``, and their ``search_seconds``.

    Raises:
        VitnasError: No candidate is within a budget.
    """
    scorer = supernet.scorer(supernet.config.test_dataloader)
    spent = sum(candidate.seconds for candidate in candidates)
    measures: dict[str, float] = {'evaluations': len(candidates), 'search_seconds': spent}
    for i, budget in enumerate(budgets, 1):
        within = ranked(candidate for candidate in candidates if candidate.cost['macs'] <= budget)
        if not within:
            raise VitnasError(f'none of the {len(candidates)} candidates has at most {budget:g} MACs')
        best = within[0]
        measures[f'accuracy_{i}'] = scorer.score(Job(best.arch)).value
        measures[f'holdout_{i}'], measures[f'macs_{i}'] = best.score, best.cost['macs']
    return measures
