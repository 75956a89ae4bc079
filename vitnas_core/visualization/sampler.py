"""Picture of a sampler: costs and options of the architectures that π(B) draws, by budget."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter

from ..spaces import SearchSpace
from . import theme
from .formats import choice_text, cost_unit, plain

if TYPE_CHECKING:
    from ..training.samplers import FocusSampler

_MOST_PANELS = 8
_MOST_GRID = 50
"""Larger grids are not sampled budget by budget, and not marked."""
_PERCENTILES = (5, 25, 50, 75, 95)


@dataclass(frozen=True)
class SamplerDraws:
    """Architectures that a sampler drew for budgets across its range.

    Args:
        space: Their search space.
        grid: Budgets with their own embedding, (G,), in MACs.
        budgets: Budgets of the draws, (B,), smallest first.
        costs: MACs of the draws, (B, N).
        codes: Encodings of the draws by :meth:`SearchSpace.encode`, (B, N, dimensions).
    """

    space: SearchSpace
    grid: np.ndarray
    budgets: np.ndarray
    costs: np.ndarray
    codes: np.ndarray


def collect_draws(
    sampler: FocusSampler, rng: np.random.Generator, num_draws: int = 200, num_budgets: int = 25
) -> SamplerDraws:
    """Draw architectures for the budgets of the grid and for evenly spaced budgets between them.

    Args:
        sampler: The sampler, bound to its space.
        rng: Random generator of the draws.
        num_draws: Architectures per budget. Defaults to 200.
        num_budgets: Number of evenly spaced budgets; those close to the grid are left out. Defaults to 25.
    """
    budgets = _budgets(sampler, num_budgets)
    with torch.no_grad():
        drawn = [sampler.draw([budget] * num_draws, rng).archs for budget in budgets.tolist()]
    costs = np.array([[sampler.price(arch).macs for arch in archs] for archs in drawn], dtype=np.float64)
    codes = np.array([[sampler.space.encode(arch) for arch in archs] for archs in drawn])
    return SamplerDraws(sampler.space, np.asarray(sampler.grid), budgets, costs, codes)


def _budgets(sampler: FocusSampler, num: int) -> np.ndarray:
    even = np.linspace(sampler.low, sampler.high, num)
    if len(sampler.grid) > _MOST_GRID:
        return even
    # Two budgets that almost coincide would show the noise of the draws as a step.
    apart = (sampler.high - sampler.low) / num / 2
    free = [budget for budget in even if np.abs(sampler.grid - budget).min() > apart]
    return np.unique([*sampler.grid, *free])


def draw_sampler(draws: SamplerDraws) -> Figure:
    """Draw cost over budget, and the fraction of each option of each kind of choice.

    Choices of one name are one kind. Fractions are over all blocks and stages that have the choice and offer more than
    one option. At most eight kinds are drawn; the title names the others.

    Args:
        draws: Result of :func:`collect_draws`.
    """
    kinds: dict[str, list[int]] = {}
    for entry, dim in enumerate(draws.space.dimensions):
        if len(dim.options) > 1:
            kinds.setdefault(dim.name, []).append(entry)
    shown, hidden = list(kinds)[:_MOST_PANELS], list(kinds)[_MOST_PANELS:]
    columns = min(len(shown), 2) if len(shown) <= 6 else 3
    rows = math.ceil(len(shown) / columns) if columns else 1
    with theme.context():
        figure = Figure(figsize=(5.2 + 3.4 * max(columns, 1), max(4.9, 1.0 + 2.0 * rows)))
        grid = figure.add_gridspec(rows, 1 + columns, width_ratios=[1.6] + [1.0] * columns)
        main = figure.add_subplot(grid[:, 0])
        _draw_costs(main, draws)
        for i, name in enumerate(shown):
            axes = figure.add_subplot(grid[i // columns, 1 + i % columns])
            _draw_options(axes, draws, kinds[name])
            axes.set_title('optional blocks' if name == 'blocks' else plain(name, 30))
            axes.set_ylabel('' if i % columns else 'probability')
            if i + columns >= len(shown):
                axes.set_xlabel(_label('budget', draws))
        figure.suptitle(_headline(draws, hidden), x=0.01, ha='left', fontsize=12, fontweight='bold')
        figure.legend(*main.get_legend_handles_labels(), loc='outside lower left', ncols=2 * (1 + columns))
    return figure


def _headline(draws: SamplerDraws, hidden: Sequence[str]) -> str:
    called = plain(draws.space.name or draws.space.family, 40)
    more = f' (not shown: {plain(", ".join(hidden), 45)})' if hidden else ''
    return f'Draws of the {called} sampler by budget{more}'


def _draw_costs(axes: Axes, draws: SamplerDraws) -> None:
    """Draw median and spread of the costs, and the line of equal cost and budget; both axes have the same scale."""
    x, (p5, p25, median, p75, p95) = _as_areas(draws, np.percentile(draws.costs, _PERCENTILES, axis=1))
    for bottom, top, alpha, label in ((p5, p95, 0.15, '5 to 95 % of the draws'), (p25, p75, 0.3, '25 to 75 %')):
        axes.fill_between(x, bottom, top, color=theme.BLUE, alpha=alpha, linewidth=0, label=label, zorder=2)
    axes.plot(x, median, color=theme.BLUE, label='median', zorder=4)
    margin = 0.02 * (x[-1] - x[0])
    ends = np.array([x[0] - margin, x[-1] + margin])
    axes.plot(ends, ends, color=theme.VERMILION, linewidth=1.2, linestyle=(0, (4, 3)), label='cost = budget', zorder=3)
    axes.fill_between(
        *(ends, ends, ends[1]), color=theme.VERMILION, alpha=0.07, linewidth=0, label='above the budget', zorder=0
    )
    if len(draws.grid) <= _MOST_GRID:
        axes.plot(
            *(draws.grid, np.full(len(draws.grid), 0.015)), transform=axes.get_xaxis_transform(), linestyle='',
            marker='|', markersize=9, markeredgewidth=1.4, color=theme.INK,
            label=f'budgets with an embedding ({len(draws.grid)})',
        )  # fmt: skip
    axes.set(
        title=f'Cost of {draws.costs.shape[1]:,} draws per budget',
        xlabel=_label('budget', draws),
        ylabel=_label('cost', draws),
    )
    axes.set(xlim=ends, ylim=ends)
    for axis in (axes.xaxis, axes.yaxis):
        _show_unit(axis, draws, 8)


def _draw_options(axes: Axes, draws: SamplerDraws, entries: Sequence[int]) -> None:
    """Draw one area per option, the smallest lowest and lightest; the legend has the same order."""
    labels, fractions = option_fractions(draws, entries)
    x, areas = _as_areas(draws, fractions)
    colors = [theme.GENERATIONS(place) for place in np.linspace(0, 1, len(labels))]
    drawn = axes.stackplot(x, areas, colors=colors, labels=labels, edgecolor='white', linewidth=0.5)
    axes.legend(
        *(drawn[::-1], labels[::-1]), loc='center left', bbox_to_anchor=(1.0, 0.5), handlelength=1.0, handleheight=1.0,
        fontsize=9 if len(labels) <= 6 else 7.5, labelspacing=0.35 if len(labels) <= 6 else 0.15, borderaxespad=0.5,
    )  # fmt: skip
    axes.set(xlim=(x[0], x[-1]), ylim=(0, 1))
    axes.yaxis.set_major_formatter(PercentFormatter(1))
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.grid(visible=False)
    _show_unit(axes.xaxis, draws, 5)


def option_fractions(draws: SamplerDraws, entries: Sequence[int]) -> tuple[list[str], np.ndarray]:
    """Fraction of each option of one kind of choice, over the blocks and stages that are present in the draws.

    Options are matched by position, smallest network first, since stages may have different values. If stages offer
    different numbers of options, they are grouped into the smallest, the largest and those between.

    Args:
        draws: The draws.
        entries: Indices of the space's dimensions of this kind.

    Returns:
        The names of the options, and their fractions (options, B). Fractions add up to 1, or to 0 at a budget
        where no draw has the choice.
    """
    dims = [draws.space.dimensions[entry] for entry in entries]
    codes = draws.codes[:, :, list(entries)]
    if dims[0].name == 'blocks':
        labels = ['absent', 'present']
    elif len({len(dim.options) for dim in dims}) == 1:
        places = zip(*(dim.options for dim in dims))
        labels = [plain(' / '.join(dict.fromkeys(map(choice_text, values))), 22) for values in places]
    else:
        labels = ['smallest', 'between', 'largest']
        last = np.array([len(dim.options) - 1 for dim in dims])
        codes = np.where(codes == last, 2, np.minimum(codes, 1))
    counts = np.array([(codes == place).sum((1, 2)) for place in range(len(labels))])
    return labels, counts / np.maximum(counts.sum(0), 1)


def _as_areas(draws: SamplerDraws, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Budgets and values (…, B) for area plots; a single budget gets a width."""
    if len(draws.budgets) > 1:
        return draws.budgets, values
    half = abs(draws.budgets[0]) * 0.05 or 1.0
    return draws.budgets[0] + np.array([-half, half]), np.repeat(values, 2, axis=-1)


def _label(what: str, draws: SamplerDraws) -> str:
    unit = f'{cost_unit("macs", draws.budgets[-1])[1]} MACs'.strip()
    return f'{what} ({unit})'


def _show_unit(axis: Axis, draws: SamplerDraws, most: int) -> None:
    size = cost_unit('macs', draws.budgets[-1])[0]
    axis.set_major_formatter(FuncFormatter(lambda value, _: f'{value / size:.6g}'))
    axis.set_major_locator(MaxNLocator(most, steps=[1, 2, 5, 10]))
