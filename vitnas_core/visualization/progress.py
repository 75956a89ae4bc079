"""The progress picture: best so far, median and spread of the score, generation by generation."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from . import theme
from .formats import metric_label
from .pareto import full, partial

if TYPE_CHECKING:
    from ..search.candidate import Candidate


def draw_progress(candidates: Sequence[Candidate], metric: str = 'score') -> Figure:
    """Draw the score over the search: by generation, or by candidate if there is only one generation.

    Lines use only candidates scored on the whole hold-out part; the others are faint points.

    Args:
        candidates: All evaluated candidates.
        metric: Name of the score. Defaults to 'score'.
    """
    ordered = sorted((c for c in candidates if full(c) or partial(c)), key=lambda c: (c.generation, c.id))
    with theme.context():
        figure, axes = theme.new_axes(6.4, 4.7)
        if len({c.generation for c in ordered}) > 1:
            _by_generation(axes, ordered)
        else:
            _by_candidate(axes, ordered)
        axes.set_ylabel(metric_label(metric))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        if len(ordered) == 1:
            axes.set_xlim(0, 2)
        axes.ticklabel_format(axis='y', useOffset=False)
        if ordered:
            figure.legend(*axes.get_legend_handles_labels(), loc='outside lower left', ncols=2)
    return figure


def _by_generation(axes: Axes, ordered: Sequence[Candidate]) -> None:
    axes.set_xlabel('generation')
    _faint(axes, [(c.generation, c.score) for c in ordered if partial(c)])
    scores: dict[int, list[float]] = {}
    for candidate in filter(full, ordered):
        scores.setdefault(candidate.generation, []).append(candidate.score)
    if not scores:
        return
    x = list(scores)
    low, first, middle, third, high = np.array([np.percentile(s, [0, 25, 50, 75, 100]) for s in scores.values()]).T
    for bottom, top, alpha, label in ((low, high, 0.12, 'worst to best'), (first, third, 0.25, 'middle half')):
        if len(x) > 1:
            axes.fill_between(x, bottom, top, color=theme.BLUE, alpha=alpha, linewidth=0, label=label)
        else:  # an area over one generation would have no width
            axes.vlines(x, bottom, top, color=theme.BLUE, alpha=alpha, linewidth=12, label=label)
    axes.plot(x, middle, color=theme.BLUE, marker='o', markersize=3.5, label='median')
    _best(axes, x, list(accumulate(high, max)))


def _by_candidate(axes: Axes, ordered: Sequence[Candidate]) -> None:
    axes.set_xlabel('candidates evaluated')
    numbered = list(enumerate(ordered, 1))
    _faint(axes, [(i, c.score) for i, c in numbered if partial(c)])
    x, y = [i for i, c in numbered if full(c)], [c.score for _, c in numbered if full(c)]
    if x:
        many = len(x) > 2000
        axes.scatter(x, y, s=10, color=theme.BLUE, alpha=0.45, linewidths=0, label='candidate', rasterized=many)
        _best(axes, x, list(accumulate(y, max)))


def _best(axes: Axes, x: Sequence[float], y: Sequence[float]) -> None:
    marker = 'o' if len(x) <= 60 else ''
    axes.plot(x, y, color=theme.VERMILION, drawstyle='steps-post', marker=marker, markersize=3, label='best so far')


def _faint(axes: Axes, points: list[tuple[int, float]]) -> None:
    if points:
        axes.scatter(
            *([x for x, _ in points], [y for _, y in points]),
            s=9, facecolors='none', edgecolors=theme.FAINT, linewidths=0.6, alpha=0.6,
            label='scored on a part', rasterized=len(points) > 2000, zorder=1,
        )  # fmt: skip
