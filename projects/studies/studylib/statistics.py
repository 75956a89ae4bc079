"""Means over seeds with intervals, paired differences, and agreement of two rankings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from .plan import StudyError

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Summary:
    """A mean with its standard deviation and confidence interval.

    Args:
        n: Number of values.
        mean: Their mean; NaN for no values.
        sd: Their standard deviation (n - 1 in the denominator); NaN below two values.
        half: Half the width of the 95 % confidence interval of the mean, by Student's t; NaN below two values.
    """

    n: int
    mean: float
    sd: float
    half: float

    @property
    def low(self) -> float:
        """Lower end of the interval."""
        return self.mean - self.half

    @property
    def high(self) -> float:
        """Upper end of the interval."""
        return self.mean + self.half


def summarize(values: Sequence[float]) -> Summary:
    """Compute mean, standard deviation and interval; one value has no interval."""
    n = len(values)
    mean = float(np.mean(values)) if n else math.nan
    if n < 2:
        return Summary(n, mean, math.nan, math.nan)
    sd = float(np.std(values, ddof=1))
    return Summary(n, mean, sd, float(stats.t.ppf((1 + CONFIDENCE) / 2, n - 1)) * sd / math.sqrt(n))


def paired_difference(values: Mapping[int, float], baseline: Mapping[int, float]) -> Summary:
    """Summarise the differences at common seeds; the effect of a seed on both cancels out.

    Args:
        values: Seed → value.
        baseline: Seed → value of the baseline.
    """
    return summarize([values[seed] - baseline[seed] for seed in values if seed in baseline])


def score_ranking(truth: Sequence[float], scores: Sequence[float]) -> dict[str, float]:
    """Measure the agreement of scores with the truth.

    Args:
        truth: Accuracies of architectures trained alone.
        scores: Scores of the same architectures in the same order, e.g. by a supernet.

    Returns:
        ``pearson``, ``spearman`` and ``kendall`` (tau-b, which allows for ties); NaN if one side is constant.

    Raises:
        StudyError: The lists differ in length, have fewer than two values, or are not finite.
    """
    if len(truth) != len(scores) or len(truth) < 2:
        raise StudyError(
            f'a ranking needs two lists of one length of at least 2, but got {len(truth)} and {len(scores)}'
        )
    if not np.isfinite([*truth, *scores]).all():
        raise StudyError('a ranking needs finite numbers')
    if np.ptp(truth) == 0 or np.ptp(scores) == 0:
        return dict(pearson=math.nan, spearman=math.nan, kendall=math.nan)
    return dict(
        pearson=float(stats.pearsonr(truth, scores)[0]),
        spearman=float(stats.spearmanr(truth, scores)[0]),
        kendall=float(stats.kendalltau(truth, scores)[0]),
    )
