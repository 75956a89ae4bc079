"""Picture of a predictor: predicted over measured scores of candidates that it was not trained on."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from . import theme
from .formats import metric_label, plain

_MANY = 2000
"""Above this number of points, an SVG holds one image instead of one shape per point."""

Pair = tuple[float, float]
"""(measured, predicted) score of a candidate."""


def draw_predictor(held_out: Sequence[Pair], final: Sequence[Pair], title: str = '', metric: str = 'score') -> Figure:
    """Draw predicted over measured scores, with the diagonal on which predictions are exact.

    Pairs that are not finite are left out.

    Args:
        held_out: Pairs of the random candidates that validate the predictor.
        final: Pairs of the candidates that were evaluated because of their predictions; may be empty.
        title: Line above the picture, e.g. R² and Kendall's τ. Defaults to ''.
        metric: Name of the score. Defaults to 'score'.
    """
    groups = [[pair for pair in group if all(map(math.isfinite, pair))] for group in (held_out, final)]
    with theme.context():
        figure, axes = theme.new_axes(5.6, 6.0)
        low, high = _range([value for group in groups for pair in group for value in pair])
        axes.plot(
            [low, high], [low, high], color=theme.INK, linewidth=1.1, linestyle=(0, (4, 3)), label='exact', zorder=2
        )
        _scatter(axes, groups[0], 'held out', theme.BLUE, 'o', 20)
        _scatter(axes, groups[1], 'predicted front', theme.VERMILION, 'D', 24)
        axes.set(xlim=(low, high), ylim=(low, high), aspect='equal')
        axes.set_xlabel(f'measured {metric_label(metric)}')
        axes.set_ylabel(f'predicted {metric_label(metric)}')
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(MaxNLocator(7))
        axes.ticklabel_format(useOffset=False)
        axes.set_title(plain(title, 80))
        figure.legend(*axes.get_legend_handles_labels(), loc='outside lower left', ncols=3)
    return figure


def _scatter(axes: Axes, pairs: Sequence[Pair], name: str, color: str, marker: str, size: float) -> None:
    if pairs:
        axes.scatter(
            *([measured for measured, _ in pairs], [predicted for _, predicted in pairs]),
            s=size, marker=marker, color=color, linewidths=0.4, edgecolors='white', alpha=0.8,
            label=f'{name} ({len(pairs):,})', rasterized=len(pairs) > _MANY, zorder=3,
        )  # fmt: skip


def _range(values: Sequence[float]) -> tuple[float, float]:
    """Limits of both axes: all values with a margin, even if there are none or all are equal."""
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    margin = 0.05 * (high - low) or abs(high) * 0.02 or 1.0
    return low - margin, high + margin
