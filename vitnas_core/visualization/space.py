"""Pictures of a space search: moves of the choices, and distributions of the errors (S3, Fig. 2, 3 and 6)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec
from matplotlib.ticker import MaxNLocator, PercentFormatter

from ..errors import VitnasError
from ..search.space_quality import SpaceQuality, subspaces
from ..spaces import StageDimension, Value, stage_dimensions
from . import theme
from .formats import choice_text, plain

if TYPE_CHECKING:
    from ..search.space_quality import SpaceStep
    from ..spaces.grammar import Options

_WIDTH = 7.2
"""Least width of a picture of panels, in inches."""
_MOST_TICKS = 6
_MOST_COLUMNS = 4
_ROUND = [1, 2, 5, 10]
"""Leading digits of the distance of ticks."""
_NETWORK = 'Whole network'


class _Kind(NamedTuple):
    """Kind of the dimensions in one row."""

    name: str
    whole: bool
    of_block: bool


@dataclass(frozen=True)
class _Scale:
    """Positions of choices on an axis: numbers at their value, words one after another."""

    values: tuple[Value, ...]

    @classmethod
    def of(cls, choices: Iterable[Options]) -> _Scale:
        """The scale of all these choices."""
        found = tuple(dict.fromkeys(value for options in choices for value in options))
        return cls(found if any(isinstance(v, str) for v in found) else tuple(sorted(found)))

    @property
    def words(self) -> bool:
        """True if there are words among the choices."""
        return any(isinstance(value, str) for value in self.values)

    def at(self, values: Sequence[Value]) -> list[float]:
        """Positions of these choices."""
        return [float(self.values.index(value)) if self.words else float(value) for value in values]

    @property
    def limits(self) -> tuple[float, float]:
        """Limits of the axis: all choices, with a margin."""
        places = self.at(self.values)
        low, high = min(places), max(places)
        room = 0.14 * (high - low) or abs(high) * 0.1 or 1.0
        return low - room, high + room

    def show(self, axis: Axis, most: int = _MOST_TICKS) -> None:
        """Put the ticks on the choices, or on round numbers if choices are too many or too close."""
        places = self.at(self.values)
        apart = min(np.diff(places), default=1.0) >= 0.12 * (places[-1] - places[0])
        if self.words or (apart and len(places) <= _MOST_TICKS):
            axis.set_ticks(places, labels=[choice_text(value) for value in self.values])
        else:
            whole = all(type(value) is int for value in self.values)
            axis.set_major_locator(MaxNLocator(most, integer=whole, steps=_ROUND))


def dimension_label(name: str) -> str:
    """Name of a dimension in pictures; the depth is the paper's number of blocks."""
    return 'number of blocks' if name == 'depth' else plain(name, 24)


def draw_space_steps(steps: Sequence[SpaceStep]) -> Figure:
    """Draw the choices of every dimension step by step: one row per dimension, one column per stage (Fig. 2).

    The panels of a row share one scale, so that stages compare. A dimension of the whole network has one panel.

    Args:
        steps: The spaces, first to last; at least one.

    Raises:
        SpaceError: The blocks of a stage offer different options.
    """
    rows = _rows(steps)
    columns = max(1 + column for row in rows.values() for column in row)
    # Panels of stages and panels of the network are separate parts, each with its own headings and step numbers.
    top = {(kind.whole, column): kind for kind, row in reversed(rows.items()) for column in row}
    bottom = {(kind.whole, column): kind for kind, row in rows.items() for column in row}
    with theme.context():
        panel = max(1.6, min(2.6, 10.4 / columns))
        figure = Figure(figsize=(max(_WIDTH, 0.8 + panel * columns), 0.9 + 1.5 * len(rows)))
        grid = figure.add_gridspec(len(rows), columns)
        for i, (kind, row) in enumerate(rows.items()):
            panels = _draw_row(figure, grid, i, row, len(steps))
            label = dimension_label(kind.name)
            panels[min(panels)].set_ylabel(label, fontsize=min(10, 150 / len(label)))  # no longer than the row is high
            for column, axes in panels.items():
                if top[kind.whole, column] == kind:
                    axes.set_title(_NETWORK if kind.whole else f'Stage {column + 1}')
                lowest = bottom[kind.whole, column] == kind
                axes.set_xlabel('step' if lowest else '')
                axes.tick_params(labelbottom=lowest)
        figure.align_ylabels()
        handles = {label: h for axes in figure.axes for h, label in zip(*axes.get_legend_handles_labels())}
        figure.legend(list(handles.values()), list(handles), loc='outside lower left', ncols=3)
    return figure


def _rows(steps: Sequence[SpaceStep]) -> dict[_Kind, dict[int, dict[int, Options]]]:
    """Choices by kind, stage and step: the number of blocks first, dimensions of the whole network last."""
    found: dict[_Kind, dict[int, dict[int, Options]]] = {}
    for number, step in enumerate(steps):
        for dimension in stage_dimensions(step.space):
            kind = _Kind(dimension.name, dimension.stage is None, dimension.of_block)
            found.setdefault(kind, {}).setdefault(dimension.stage or 0, {})[number] = dimension.options
    ordered = sorted(found, key=lambda kind: (kind.whole, kind.name != 'depth'))
    return {kind: found[kind] for kind in ordered}


def _draw_row(
    figure: Figure, grid: GridSpec, place: int, row: Mapping[int, Mapping[int, Options]], num_steps: int
) -> dict[int, Axes]:
    """Draw the panels of one dimension, by column, on one scale; the first one has the tick labels."""
    scale = _Scale.of(options for choices in row.values() for options in choices.values())
    panels: dict[int, Axes] = {}
    for column, choices in sorted(row.items()):
        first = next(iter(panels.values()), None)
        panels[column] = figure.add_subplot(grid[place, column], sharey=first)
        panels[column].tick_params(labelleft=first is None)
        _draw_choices(panels[column], choices, scale, num_steps)
    panels[min(panels)].set_ylim(scale.limits)
    scale.show(panels[min(panels)].yaxis)
    return panels


def _draw_choices(axes: Axes, choices: Mapping[int, Options], scale: _Scale, num_steps: int) -> None:
    """Draw one dot per choice; if choices are numbers, lines from step to step show the tendency."""
    places = {step: scale.at(options) for step, options in choices.items()}
    dots = [(step, place) for step, found in places.items() for place in found]
    size = 4.5 if num_steps <= 6 else 3
    axes.plot(*zip(*dots), color=theme.BLUE, linestyle='', marker='o', markersize=size, label='choice', zorder=4)
    if num_steps > 1 and not scale.words:
        x = list(places)
        low, mean, high = np.array([(min(p), np.mean(p), max(p)) for p in places.values()]).T
        axes.fill_between(x, low, high, color=theme.BLUE, alpha=0.1, linewidth=0, zorder=1)
        for edge, label in ((low, 'lowest and highest'), (high, None)):
            axes.plot(x, edge, color=theme.BLUE, alpha=0.55, linewidth=0.9, label=label, zorder=2)
        axes.plot(x, mean, color=theme.VERMILION, linewidth=1.2, linestyle=(0, (4, 2)), label='mean', zorder=3)
    axes.set_xlim(-0.4, num_steps - 0.6)
    axes.xaxis.set_major_locator(MaxNLocator(_MOST_TICKS, integer=True, min_n_ticks=1, steps=_ROUND))


def draw_error_distribution(steps: Sequence[SpaceStep]) -> Figure:
    """Draw the empirical distribution function of the errors of every space (Fig. 6): further left is better.

    Args:
        steps: The spaces, first to last, each with at least one sample.
    """
    with theme.context():
        figure, axes = theme.new_axes(6.4, 4.7)
        for i, (step, color) in enumerate(zip(steps, _ordered_colors(len(steps)))):
            label = f'step {i}, E-T {step.quality.et_error:.1f} %'
            _draw_distribution(axes, [sample.error for sample in step.samples], color=color, label=label)
        _label_distribution(axes)
        axes.set_ylabel('cumulative fraction of architectures')
        columns = 2 if len(steps) <= 4 else 3
        figure.legend(*axes.get_legend_handles_labels(), loc='outside lower left', ncols=columns)
    return figure


def draw_choice_distribution(step: SpaceStep, name: str = 'depth') -> Figure:
    """Draw the errors of each choice of one dimension, stage by stage (Fig. 3).

    One panel per stage has the empirical distribution function of the errors of the architectures with each choice.
    The last panel has the top-tier error over the choice. For a dimension of single blocks, an architecture counts
    once per block that has the choice.

    Args:
        step: A space and its samples.
        name: Name of the dimension. Defaults to 'depth'.

    Raises:
        VitnasError: No stage has such a dimension.
        SpaceError: The blocks of a stage offer different options.
    """
    dimensions = stage_dimensions(step.space)
    chosen = [dimension for dimension in dimensions if dimension.name == name]
    if not chosen:
        known = ', '.join(dict.fromkeys(dimension.name for dimension in dimensions))
        raise VitnasError(f'there is no dimension {name!r} to draw; the space has {known}')
    errors = [subspaces(dimension, step.samples) for dimension in chosen]
    rows = math.ceil(len(chosen) / _MOST_COLUMNS)
    columns = math.ceil(len(chosen) / rows)
    with theme.context():
        figure = Figure(figsize=(max(_WIDTH, 3.8 + 2.3 * columns), 0.4 + 2.9 * rows))
        grid = figure.add_gridspec(rows, columns + 1, width_ratios=[1.0] * columns + [1.1])
        first = None
        for i, (dimension, found) in enumerate(zip(chosen, errors)):
            axes = figure.add_subplot(grid[i // columns, i % columns], sharex=first, sharey=first)
            _draw_stage(axes, dimension, found)
            axes.tick_params(labelleft=i % columns == 0)
            axes.set_ylabel('' if i % columns else 'cumulative fraction')
            axes.set_xlabel('error (%)' if i + columns >= len(chosen) else '')
            first = first or axes
        _draw_top(figure.add_subplot(grid[:, columns]), chosen, errors, step.top)
    return figure


def _draw_stage(axes: Axes, dimension: StageDimension, errors: Mapping[Value, Sequence[float]]) -> None:
    """Draw one curve per choice, the smallest lightest; a choice without architectures is only in the legend."""
    for (value, found), color in zip(errors.items(), _ordered_colors(len(errors))):
        if found:
            _draw_distribution(axes, found, color=color, linewidth=1.5, label=choice_text(value))
        else:
            axes.plot([], [], color=color, linewidth=1.5, label=f'{choice_text(value)} (none)')
    size = 8 if len(errors) <= 6 else 6.5
    axes.legend(
        title=dimension_label(dimension.name), loc='lower right', alignment='left', fontsize=size, title_fontsize=size,
        handlelength=1.2, labelspacing=0.25, borderaxespad=0.2, frameon=True, framealpha=0.8, edgecolor='none',
    )  # fmt: skip
    axes.set_title(_stage_name(dimension))
    _label_distribution(axes)


def _draw_top(
    axes: Axes, dimensions: Sequence[StageDimension], errors: Sequence[Mapping[Value, Sequence[float]]], top: float
) -> None:
    """Draw the top-tier error over the choice, one line per stage; the legend is beside the panel."""
    scale = _Scale.of(dimension.options for dimension in dimensions)
    for i, (dimension, found) in enumerate(zip(dimensions, errors)):
        tops = {value: SpaceQuality.of(some, top).top for value, some in found.items() if some}
        dashed, color = divmod(i, len(theme.PALETTE))
        axes.plot(
            *(scale.at(list(tops)), list(tops.values())), color=theme.PALETTE[color], marker='o', markersize=4,
            linewidth=1.4, linestyle=(0, (3, 1.5)) if dashed % 2 else '-', label=_stage_name(dimension),
        )  # fmt: skip
    axes.set(title='Top-tier error', xlabel=dimension_label(dimensions[0].name), ylabel='error (%)', xlim=scale.limits)
    axes.ticklabel_format(axis='y', useOffset=False)
    axes.yaxis.set_major_locator(MaxNLocator(6, steps=_ROUND))
    scale.show(axes.xaxis, 8)
    axes.legend(loc='center left', bbox_to_anchor=(1.0, 0.5), handlelength=1.4, fontsize=8)


def _draw_distribution(axes: Axes, errors: Sequence[float], **style: Any) -> None:
    """Draw the fraction of errors that are at most x, as steps."""
    ordered = np.sort(errors)
    axes.plot([ordered[0], *ordered], np.linspace(0, 1, len(ordered) + 1), drawstyle='steps-post', **style)


def _label_distribution(axes: Axes) -> None:
    axes.set(xlabel='error (%)', ylim=(0, 1.02))
    axes.yaxis.set_major_formatter(PercentFormatter(1))
    axes.xaxis.set_major_locator(MaxNLocator(5, steps=_ROUND))
    axes.ticklabel_format(axis='x', useOffset=False)


def _ordered_colors(count: int) -> list[Any]:
    """Colours of an ordered series, the first lightest."""
    return [theme.BLUE] if count == 1 else [theme.GENERATIONS(place) for place in np.linspace(0, 1, count)]


def _stage_name(dimension: StageDimension) -> str:
    return _NETWORK if dimension.stage is None else f'Stage {dimension.stage + 1}'
