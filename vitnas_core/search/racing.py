"""Racing: the highest score that a candidate can still reach, judged from the images it has seen."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..errors import VitnasError


@dataclass(frozen=True)
class Racing:
    """A bound on the mean over all images, of which the first ones were drawn without replacement.

    The bound of Hoeffding and Serfling (Bardenet and Maillard, Bernoulli 2015, Corollary 2.5): with
    probability 1 - δ the mean μ over N values in a range of width s is at most

        mean_n + s √(ρ_n log(1/δ) / (2n)),  ρ_n = min(1 - (n-1)/N, (1 - n/N)(1 + 1/n)).

    It never exceeds what a perfect rest would give. δ is shared out among the looks of one candidate.

    Args:
        confidence: The chance that a candidate that would reach the parents is kept, at every look
            together; 1 for certainty, where only what cannot be caught up any more is dropped.

    Raises:
        VitnasError: The confidence is not above 0 and at most 1.
    """

    confidence: float

    def __post_init__(self) -> None:
        if isinstance(self.confidence, bool) or not 0 < self.confidence <= 1:
            raise VitnasError(f'`racing.confidence` should be above 0 and at most 1, but got {self.confidence!r}')

    def upper(self, mean: float, seen: int, total: int, span: float, looks: int) -> float:
        """The highest mean over all images that is still believed.

        Args:
            mean: The mean over the images seen.
            seen: How many that are, at least 1.
            total: How many there are.
            span: The highest value of one image; the lowest is 0.
            looks: How often a candidate is judged at most.
        """
        certain = (mean * seen + span * (total - seen)) / total
        if self.confidence == 1:
            return certain
        rho = min(1 - (seen - 1) / total, (1 - seen / total) * (1 + 1 / seen))
        radius = span * math.sqrt(rho * math.log(max(looks, 1) / (1 - self.confidence)) / (2 * seen))
        return min(certain, mean + radius)
