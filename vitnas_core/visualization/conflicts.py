"""Picture of gradient conflicts: the conflict ratio over the training, and the fraction of each layer."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, PercentFormatter

from ..errors import VitnasError
from . import theme
from .formats import plain

Row = tuple[int, str, float]
"""Iteration, layer and the cosine of its two gradients, as ``vitnas.ConflictMeterHook`` writes them."""

_MOST_NAMED = 6
_ROOM = 135.0
"""Number of letters that fit below the axis, over all tick labels."""


class LayerConflicts(NamedTuple):
    """Fraction of conflicts of one layer.

    Args:
        layer: Name of the layer.
        fraction: Fraction of its measurements with a negative cosine.
        mean: Its mean cosine.
    """

    layer: str
    fraction: float
    mean: float


def ratios(rows: Sequence[Row]) -> dict[int, float]:
    """The fraction of layers with a negative cosine, by iteration."""
    cosines: dict[int, list[float]] = {}
    for step, _, cosine in rows:
        cosines.setdefault(step, []).append(cosine)
    return {step: float(np.mean(np.array(found) < 0)) for step, found in sorted(cosines.items())}


def layer_conflicts(rows: Sequence[Row]) -> list[LayerConflicts]:
    """Fraction of conflicts of each layer, in network order, which is the order of the rows."""
    cosines: dict[str, list[float]] = {}
    steps: dict[int, list[str]] = {}
    for step, layer, cosine in rows:
        cosines.setdefault(layer, []).append(cosine)
        steps.setdefault(step, []).append(layer)
    order: list[str] = []
    for layers in dict.fromkeys(map(tuple, steps.values())):  # layers missing at first follow their neighbour
        place = 0
        for layer in layers:
            if layer in order:
                place = order.index(layer) + 1
            else:
                order.insert(place, layer)
                place += 1
    found = [(layer, np.array(cosines[layer])) for layer in order]
    return [LayerConflicts(layer, float((values < 0).mean()), float(values.mean())) for layer, values in found]


def draw_conflicts(rows: Sequence[Row]) -> Figure:
    """Draw the conflict ratio over the training and the fraction of conflicts of each layer.

    Args:
        rows: Measurements of the hook.

    Raises:
        VitnasError: ``rows`` is empty.
    """
    if not rows:
        raise VitnasError('there are no conflict measurements to draw')
    layers = layer_conflicts(rows)
    with theme.context():
        figure = Figure(figsize=(10.5, 7.2))
        above, below = figure.subplots(2, 1, height_ratios=[1.0, 1.15])
        _draw_ratios(above, ratios(rows))
        handles = _draw_layers(below, layers)
        figure.suptitle(
            f'Gradient conflicts between the largest and smaller architectures: '
            f'{np.mean([row[2] < 0 for row in rows]):.1%} of all cosines are negative',
            x=0.01, ha='left', fontsize=12, fontweight='bold',
        )  # fmt: skip
        if handles:
            figure.legend(
                handles=handles, loc='outside lower left', ncols=2, title='Most often in conflict', alignment='left',
                handlelength=0, handletextpad=0.4,
            )  # fmt: skip
    return figure


def _draw_ratios(axes: Axes, found: dict[int, float]) -> None:
    steps, values = list(found), list(found.values())
    marker = 'o' if len(steps) <= 80 else ''
    if len(steps) > 20:  # single batches are noisy
        width = max(3, len(steps) // 15)
        kernel = np.ones(width)
        smooth = np.convolve(values, kernel, 'same') / np.convolve(np.ones(len(values)), kernel, 'same')
        style: dict[str, Any] = dict(linewidth=0.8, alpha=0.45, marker=marker, markersize=2.5)
        axes.plot(steps, values, color=theme.BLUE, **style, label='one batch')
        axes.plot(steps, smooth, color=theme.BLUE, label=f'mean over {width} measurements')
        axes.legend(loc='best', ncols=2)
    else:
        axes.plot(steps, values, color=theme.BLUE, marker='o', markersize=4)
    axes.set(title='Layers in conflict while the supernet trains', xlabel='iteration', ylabel='fraction of layers')
    axes.set_ylim(0, min(1.05, max(0.05, 1.12 * max(values))))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=10, min_n_ticks=1))
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))


def _draw_layers(axes: Axes, layers: list[LayerConflicts]) -> list[Line2D]:
    """Draw one bar per layer in network order; number the worst layers and return legend entries that name them."""
    values = np.array([one.fraction for one in layers])
    worst = [int(i) for i in np.argsort(-values, kind='stable')[:_MOST_NAMED] if values[i] > 0]
    colors = [theme.VERMILION if i in worst else theme.BLUE for i in range(len(layers))]
    axes.bar(range(len(layers)), values, width=0.8, color=colors)
    top = min(1.12, max(0.05, 1.18 * values.max()))
    handles = []
    for rank, i in enumerate(worst, 1):
        axes.annotate(str(rank), (i, values[i]), (0, 2), textcoords='offset points', ha='center', fontsize=8.5)
        words = f'{rank}  {plain(layers[i].layer, 60)}: {values[i]:.0%}, mean cosine {layers[i].mean:+.2f}'
        handles.append(Line2D([], [], linestyle='', label=words))
    _mark_blocks(axes, [block_of(one.layer) for one in layers])
    axes.set(title='Conflicts layer by layer, in the order of the network')
    axes.set(xlabel='block', ylabel='fraction of measurements')
    axes.set(xlim=(-0.7, len(layers) - 0.3), ylim=(0, top))
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    return handles


def _mark_blocks(axes: Axes, blocks: list[str]) -> None:
    """Shade every second block, and name the blocks that have room for a label."""
    ticks, start = [], 0
    for number, (block, members) in enumerate(groupby(blocks)):
        end = start + len(list(members))
        if number % 2:
            axes.axvspan(start - 0.5, end - 0.5, color=theme.BAND, zorder=0, linewidth=0)
        ticks.append(((start + end - 1) / 2, block))
        start = end
    shown, free = [], -np.inf
    for place, block in ticks:
        half = (len(block) + 1) / 2 * len(blocks) / _ROOM
        if place - half >= free:
            shown.append((place, block))
            free = place + half
    axes.set_xticks([place for place, _ in shown], [block for _, block in shown], fontsize=8)
    axes.tick_params(axis='x', length=0)
    axes.grid(visible=False, axis='x')


def block_of(layer: str) -> str:
    """Short name of a layer's block: ``0.2`` for ``backbone.stages.0.blocks.2.attn.qkv``, or ``head``."""
    parts = layer.removeprefix('backbone.').split('.')
    numbers = [after for before, after in zip(parts, parts[1:]) if before in ('stages', 'blocks') and after.isdigit()]
    return '.'.join(numbers) if numbers else plain(parts[0].removesuffix('_bn'), 14)
