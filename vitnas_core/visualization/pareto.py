"""Picture of the Pareto front: every candidate's score over its cost, the front, the winner and the limit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from ..errors import VitnasError
from . import theme
from .formats import Baseline, cost_label, cost_text, cost_unit, metric_label, plain, score_text

if TYPE_CHECKING:
    from ..search.candidate import Candidate

_MANY = 2000
"""Above this number of points, an SVG holds one image instead of one shape per point."""
_MARKS = 'Ds^vPX'


def full(candidate: Candidate) -> bool:
    """Return whether a candidate was scored on the whole hold-out part, so that its score is comparable."""
    return candidate.complete and candidate.fraction >= 1 and math.isfinite(candidate.score)


def partial(candidate: Candidate) -> bool:
    """Return whether a candidate was scored on a part of the data only: dropped by racing, or in an early rung."""
    return math.isfinite(candidate.score) and not full(candidate)


def draw_pareto(
    candidates: Sequence[Candidate],
    front: Sequence[Candidate],
    best: Candidate,
    cost: str = 'macs',
    limit: tuple[float | None, float | None] | None = None,
    metric: str = 'score',
    baselines: Sequence[Baseline] = (),
) -> Figure:
    """Draw every candidate's score over a cost, generations by colour, with the front and the winner.

    Candidates scored on a part of the hold-out data are faint; those without a finite score are left out.

    Args:
        candidates: All evaluated candidates.
        front: The Pareto front of score and cost, in any order; may be empty.
        best: The winner.
        cost: Name of the cost. Defaults to 'macs'.
        limit: (low, high) of that cost, None or infinite for no bound. Defaults to None.
        metric: Name of the score. Defaults to 'score'.
        baselines: Further networks to mark. Defaults to ().

    Raises:
        VitnasError: A candidate has no such cost.
    """
    for candidate in (*candidates, *front, best):
        if cost not in candidate.cost:
            known = ', '.join(candidate.cost)
            raise VitnasError(f'candidate {candidate.id} has no cost {cost!r} to draw; it has {known}')
    with theme.context():
        figure, axes = theme.new_axes(6.4, 4.7)
        _scatter(figure, axes, candidates, cost)
        _draw_front(axes, front, cost)
        if math.isfinite(best.score):
            _mark(axes, best.cost[cost], best.score, 'winner', cost, metric, marker='*', color=theme.VERMILION, s=260)
        _pad(axes)
        _draw_baselines(axes, baselines, cost, metric)
        _draw_limit(axes, limit or (None, None), cost)
        _label(axes, cost, metric)
        figure.legend(*axes.get_legend_handles_labels(), loc='outside lower left', ncols=2)
    return figure


def _scatter(figure: Figure, axes: Axes, candidates: Sequence[Candidate], cost: str) -> None:
    many, size = len(candidates) > _MANY, 30 if len(candidates) <= 200 else 16
    faint, whole = [c for c in candidates if partial(c)], [c for c in candidates if full(c)]
    if faint:
        axes.scatter(
            *([c.cost[cost] for c in faint], [c.score for c in faint]),
            s=size * 0.7, marker='o', facecolors='none', edgecolors=theme.FAINT, linewidths=0.7, alpha=0.6,
            label=f'scored on a part of the data ({len(faint):,})', rasterized=many, zorder=2,
        )  # fmt: skip
    if whole:
        generations = [c.generation for c in whole]
        several = min(generations) < max(generations)
        color: dict[str, Any] = dict(c=generations, cmap=theme.GENERATIONS) if several else dict(color=theme.BLUE)
        points = axes.scatter(
            *([c.cost[cost] for c in whole], [c.score for c in whole]),
            **color, s=size, linewidths=0, alpha=0.85,
            label=f'candidates ({len(whole):,})', rasterized=many, zorder=3,
        )  # fmt: skip
        if several:
            bar: Any = figure.colorbar(points, ax=axes, label='generation', pad=0.02, aspect=30)
            bar.locator = MaxNLocator(integer=True, nbins=8)
            bar.outline.set_visible(False)
            bar.solids.set_alpha(1)


def _draw_front(axes: Axes, front: Sequence[Candidate], cost: str) -> None:
    ordered = sorted((c for c in front if math.isfinite(c.score)), key=lambda c: (c.cost[cost], c.score))
    if ordered:
        axes.plot(
            *([c.cost[cost] for c in ordered], [c.score for c in ordered]),
            drawstyle='steps-post', color=theme.INK, linewidth=1.3, marker='o', markersize=4.5,
            markerfacecolor='white', markeredgewidth=1.2, label=f'Pareto front ({len(ordered):,})', zorder=4,
        )  # fmt: skip


def _draw_baselines(axes: Axes, baselines: Sequence[Baseline], cost: str, metric: str) -> None:
    """Mark the baselines; the view grows for near ones, far ones are only in the legend."""
    view = _View(*axes.get_xlim(), *axes.get_ylim())
    for mark, (name, score, costs) in zip(_MARKS * len(baselines), baselines):
        if cost not in costs or not math.isfinite(score):
            continue
        wider = view.grown(costs[cost], score)
        view = wider or view
        called = plain(name, 40) if wider else f'{plain(name, 40)} (off the plot)'
        _mark(axes, costs[cost], score, called, cost, metric, marker=mark, color=theme.INK, s=40)
    axes.set(xlim=view[:2], ylim=view[2:])


class _View(NamedTuple):
    left: float
    right: float
    bottom: float
    top: float

    def grown(self, x: float, y: float) -> _View | None:
        """The view extended to a point, or None if everything else would become too small."""
        wide, high = (self.right - self.left) * 0.05, (self.top - self.bottom) * 0.05
        view = _View(
            *(min(self.left, x - wide), max(self.right, x + wide)),
            *(min(self.bottom, y - high), max(self.top, y + high)),
        )
        return view if view.right - view.left <= 30 * wide and view.top - view.bottom <= 30 * high else None


def _mark(axes: Axes, x: float, y: float, name: str, cost: str, metric: str, **style: Any) -> None:
    label = f'{name}: {score_text(metric, y)} at {cost_text(cost, x)}'
    axes.scatter([x], [y], edgecolors='white', linewidths=0.9, label=label, zorder=6, **style)


def _pad(axes: Axes) -> None:
    """Set a view with a margin, which is not empty even for one point or equal points."""
    (left, bottom), (right, top) = axes.dataLim.min, axes.dataLim.max
    if not all(map(math.isfinite, (left, bottom, right, top))):
        return
    wide = (right - left) or abs(right) * 0.1 or 1.0
    high = (top - bottom) or abs(top) * 0.02 or 1.0
    axes.set(xlim=(left - 0.06 * wide, right + 0.06 * wide), ylim=(bottom - 0.07 * high, top + 0.09 * high))


def _draw_limit(axes: Axes, limit: tuple[float | None, float | None], cost: str) -> None:
    """Draw a line at each limit, and shade the excluded side of near ones."""
    left, right = axes.get_xlim()
    for bound, side, words in zip(limit, (-1, 1), ('at least', 'at most')):
        if bound is None or math.isinf(bound):
            continue
        reach = max(abs(right - left), abs(bound) * 0.01) * 0.06
        # A limit far from every candidate would squeeze them into a corner, so only the legend names it.
        near = left - 4 * reach <= bound <= right + 4 * reach
        label = f'limit: {words} {cost_text(cost, bound)}{"" if near else " (off the plot)"}'
        axes.axvline(bound, color=theme.VERMILION, linewidth=1.2, linestyle=(0, (4, 3)), label=label, zorder=1)
        if near:
            left, right = min(left, bound - reach), max(right, bound + reach)
            edge = left if side < 0 else right
            axes.axvspan(min(bound, edge), max(bound, edge), color=theme.VERMILION, alpha=0.07, linewidth=0, zorder=0)
    axes.set_xlim(left, right)


def _label(axes: Axes, cost: str, metric: str) -> None:
    size, sign = cost_unit(cost, max(map(abs, axes.get_xlim())))
    axes.set_xlabel(f'{cost_label(cost)} ({sign})' if sign else cost_label(cost))
    axes.set_ylabel(metric_label(metric))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f'{value / size:.6g}'))
    axes.xaxis.set_major_locator(MaxNLocator(8))
    axes.ticklabel_format(axis='y', useOffset=False)
