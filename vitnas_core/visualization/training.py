"""Training curves from the supernet report hook, one panel per metric."""

from __future__ import annotations

import csv
import math
import os
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..errors import VitnasError
from . import theme
from .formats import metric_label, plain

_COLUMNS = ('epoch', 'iter', 'name', 'metric', 'value')
_NAMED = {'largest': theme.BLUE, 'smallest': theme.VERMILION}


class _Row(NamedTuple):
    epoch: float
    iter: float
    name: str
    metric: str
    value: float


def draw_training(csv_path: str | os.PathLike) -> Figure:
    """Draw the curves of a ``supernet_report.csv``: largest, smallest, and the range of the random ones.

    If a resumed training repeats a measurement, the later row counts. Values that are not finite are left out.

    Args:
        csv_path: The file, with the columns epoch, iter, name, metric and value.

    Raises:
        VitnasError: The file is missing or malformed; the message names a malformed line.
    """
    rows = _read(Path(csv_path))
    by_epoch = len({row.epoch for row in rows}) >= len({row.iter for row in rows})
    metrics = list(dict.fromkeys(row.metric for row in rows))
    columns = min(2, len(metrics))
    lines = math.ceil(len(metrics) / columns)
    with theme.context():
        figure = Figure(figsize=(6.4, max(4.7, 0.6 + 3.2 * lines)))
        for i, metric in enumerate(metrics):
            axes = figure.add_subplot(lines, columns, i + 1)
            _panel(axes, [row for row in rows if row.metric == metric], by_epoch)
            axes.set_title(plain(metric, 40))
            axes.set(xlabel='epoch' if by_epoch else 'iteration', ylabel=metric_label(metric))
        handles = {label: h for axes in figure.axes for h, label in zip(*axes.get_legend_handles_labels())}
        figure.legend(list(handles.values()), list(handles), loc='outside lower left', ncols=4)
    return figure


def _panel(axes: Axes, rows: list[_Row], by_epoch: bool) -> None:
    curves: dict[str, dict[float, float]] = {}
    for row in rows:
        if math.isfinite(row.value):
            curves.setdefault(row.name, {})[row.epoch if by_epoch else row.iter] = row.value
    others = {name: curve for name, curve in curves.items() if name not in _NAMED}
    if len(others) > 1:
        steps = sorted({x for curve in others.values() for x in curve})
        values = [[curve[x] for curve in others.values() if x in curve] for x in steps]
        low, high = [min(v) for v in values], [max(v) for v in values]
        axes.fill_between(steps, low, high, color=theme.FAINT, alpha=0.25, linewidth=0, label='range of random ones')
    for i, curve in enumerate(others.values()):
        style: dict[str, Any] = dict(color=theme.FAINT_INK, linewidth=0.8, marker='.', markersize=3, alpha=0.8)
        axes.plot(*zip(*sorted(curve.items())), **style, label='random' if i == 0 else None)
    for name, color in _NAMED.items():
        if name in curves:
            axes.plot(*zip(*sorted(curves[name].items())), color=color, marker='o', markersize=3.5, label=name)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
    axes.ticklabel_format(useOffset=False)


def _read(path: Path) -> list[_Row]:
    try:
        with path.open(newline='', encoding='utf-8') as file:
            table = csv.DictReader(file)
            missing = [name for name in _COLUMNS if name not in (table.fieldnames or ())]
            if missing:
                raise VitnasError(f'{path} should have the columns {", ".join(_COLUMNS)}, but lacks {missing[0]}')
            rows = [_read_row(path, table.line_num, line) for line in table]
    except (OSError, UnicodeDecodeError, csv.Error) as err:
        raise VitnasError(f'{path} cannot be read as a supernet report: {err}') from None
    if not rows:
        raise VitnasError(f'{path} holds no measurement; the report hook writes one row per architecture and metric')
    return rows


def _read_row(path: Path, number: int, line: dict[str, str]) -> _Row:
    try:
        numbers = [float(line[name]) for name in ('epoch', 'iter', 'value')]
    except (TypeError, ValueError):
        raise VitnasError(f'{path}:{number} should hold numbers for epoch, iter and value, but got {line}') from None
    return _Row(numbers[0], numbers[1], plain(line['name']), line['metric'], numbers[2])
