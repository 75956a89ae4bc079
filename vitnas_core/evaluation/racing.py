"""Racing: drop a candidate as soon as the images seen show that it cannot reach the score it needs."""

from __future__ import annotations

import math
from dataclasses import dataclass

from mmengine.evaluator import Evaluator

from ..errors import VitnasError
from ..utils import checks
from .steps import AnyStep, computed

_SLACK = 1e-4
"""Accuracies are float32 percentages: rounding must not drop a candidate that ties with the floor."""


@dataclass(frozen=True)
class Racing:
    """Bound on the mean over all images, given the first ones in a random order without replacement.

    The bound of Hoeffding and Serfling (Bardenet and Maillard, Bernoulli 2015, Corollary 2.5): with
    probability 1 - δ the mean μ over N values in a range of width s is at most

        mean_n + s √(ρ_n log(1/δ) / (2n)),  ρ_n = min(1 - (n-1)/N, (1 - n/N)(1 + 1/n)).

    It never exceeds the mean that a perfect rest would give. δ is split evenly over all looks at one candidate.

    Args:
        confidence: Chance to keep a candidate that would reach the floor, over all looks together. 1 drops only
            candidates that cannot catch up any more.

    Raises:
        VitnasError: The confidence is not above 0 and at most 1.
    """

    confidence: float

    def __post_init__(self) -> None:
        checks.fraction('racing.confidence', self.confidence)

    def upper(self, mean: float, seen: int, total: int, span: float, looks: int) -> float:
        """Highest mean over all images that is still believed.

        Args:
            mean: Mean over the images seen.
            seen: Number of images seen, at least 1.
            total: Number of all images.
            span: Highest value of one image; the lowest is 0.
            looks: Number of times a candidate is judged at most.
        """
        certain = (mean * seen + span * (total - seen)) / total
        if self.confidence == 1:
            return certain
        rho = min(1 - (seen - 1) / total, (1 - seen / total) * (1 + 1 / seen))
        radius = span * math.sqrt(rho * math.log(max(looks, 1) / (1 - self.confidence)) / (2 * seen))
        return min(certain, mean + radius)


class Race:
    """Running mean of one candidate against a floor.

    Args:
        racing: Bound that decides when to give up.
        step: Runs the batches of the candidate.
        floor: Score that the candidate must be able to reach.
        images: Number of all images.
        batches: Number of all batches.
    """

    def __init__(self, racing: Racing, step: AnyStep, floor: float, images: int, batches: int) -> None:
        self.racing, self.step, self.floor = racing, step, floor
        self.images, self.batches, self.span = images, batches, span_of_mean(step.evaluator)
        self.seen, self.total = 0, 0.0

    def is_lost(self) -> bool:
        """Return whether the floor is out of reach after the batches so far; never after the last one."""
        metric = self.step.evaluator.metrics[0]
        fresh = len(metric.results) - self.seen
        if fresh and len(metric.results) < self.images:
            values = computed(metric, metric.results[self.seen :])
            self.total += values[self.step.metric or next(iter(values))] * fresh
        self.seen = len(metric.results)
        if not 0 < self.seen < self.images:
            return False
        bound = self.racing.upper(self.total / self.seen, self.seen, self.images, self.span, self.batches - 1)
        return bound < self.floor - _SLACK


def span_of_mean(evaluator: Evaluator) -> float:
    """Return the width of the range of one image's value, for a metric that is the mean of these values.

    Raises:
        VitnasError: The metric is not a mean over images.
    """
    from mmpretrain.evaluation import Accuracy

    names = [type(metric).__name__ for metric in evaluator.metrics]
    if len(names) != 1 or not isinstance(evaluator.metrics[0], Accuracy):
        raise VitnasError(
            f"`racing` needs a metric that is a mean over images, mmpretrain's Accuracy alone, but got "
            f'{", ".join(names)}; leave `racing` out'
        )
    return 100.0
