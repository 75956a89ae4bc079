"""Report of a study: all numbers as CSV, one table with intervals, and a plot."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

from vitnas_core.utils.fileio import atomic_write

from .curves import draw_curves, read_curves
from .plan import SHARED, Study
from .results import Job
from .statistics import Summary, paired_difference, summarize

Values = dict[str, dict[str, dict[int, float]]]
"""Measure → run → seed → value."""


@dataclass(frozen=True)
class Row:
    """A run under one measure: its summary and its difference to the baseline."""

    measure: str
    run: str
    summary: Summary
    difference: Summary | None


def read_values(runs: Sequence[Sequence[Job]]) -> Values:
    """Read all measures of all finished steps: ``'STEP.MEASURE'`` and ``'STEP.seconds'``."""
    values: Values = {}
    for job in (job for steps in runs for job in steps if job.run.name != SHARED):
        result = job.result()
        if result is None:
            continue
        for name, value in {**result['measures'], 'seconds': result['seconds']}.items():
            values.setdefault(f'{job.step.name}.{name}', {}).setdefault(job.run.name, {})[job.run.seed] = value
    return values


def summarize_study(study: Study, values: Values) -> list[Row]:
    """Build the table rows: for each measure, all runs."""
    rows = []
    for measure in study.measures:
        by_run = values.get(measure, {})
        for run in study.runs:
            found, base = by_run.get(run, {}), by_run.get(study.baseline, {})
            difference = None if run == study.baseline else paired_difference(found, base)
            rows.append(Row(measure, run, summarize(list(found.values())), difference))
    return rows


def write_report(study: Study, runs: Sequence[Sequence[Job]], work_dir: Path) -> str:
    """Write results.csv, table.csv, table.md, plot.png and, if a step trains, curves.png.

    Returns:
        The table as Markdown.
    """
    values = read_values(runs)
    rows = summarize_study(study, values)
    flat = [
        [run, seed, measure, value]
        for measure, by_run in values.items()
        for run, by_seed in by_run.items()
        for seed, value in by_seed.items()
    ]
    atomic_write(work_dir / 'results.csv', _csv(['run', 'seed', 'measure', 'value'], flat))
    atomic_write(work_dir / 'table.csv', table_csv(study, rows))
    text = table_markdown(study, rows)
    atomic_write(work_dir / 'table.md', text)
    _save(draw(study, values, rows), work_dir / 'plot.png')
    if curves := read_curves(runs):
        _save(draw_curves(study, curves), work_dir / 'curves.png')
    return text


def table_csv(study: Study, rows: Sequence[Row]) -> str:
    """Format the table as CSV with all digits; cells without enough data are empty."""
    head = 'measure title run n mean sd low95 high95 difference_n difference difference_low95 difference_high95'
    lines = []
    for row in rows:
        own, other = row.summary, row.difference
        lines.append([row.measure, study.measures[row.measure], row.run, own.n, own.mean, own.sd, own.low, own.high])
        lines[-1] += ['', '', '', ''] if other is None else [other.n, other.mean, other.low, other.high]
    return _csv(head.split(), lines)


def table_markdown(study: Study, rows: Sequence[Row]) -> str:
    """Format the table as Markdown."""
    lines = [
        f'| measure | run | seeds | mean ± sd | 95 % interval of the mean | difference to {study.baseline}, paired '
        '(95 % interval) |',
        '|---|---|---|---|---|---|',
    ]
    for row in rows:
        digits = _digits([r.summary.mean for r in rows if r.measure == row.measure])
        cells = [study.measures[row.measure], row.run, str(row.summary.n), _spread(row.summary, digits)]
        cells += [_interval(row.summary, digits), _difference(row, digits)]
        lines.append('| ' + ' | '.join(cells) + ' |')
    notes = "Standard deviations are over seeds (n − 1); intervals are by Student's t; one seed gives no interval."
    return '\n'.join([*lines, '', notes, ''])


def draw(study: Study, values: Values, rows: Sequence[Row]) -> Figure:
    """Draw one panel per measure: the value of each seed, the mean and its interval."""
    measures = list(study.measures)
    columns = min(3, len(measures))
    height = math.ceil(len(measures) / columns)
    width = max(2.8, 0.75 * len(study.runs) + 1.2)
    figure = Figure(figsize=(width * columns, 3.1 * height), layout='constrained')
    for i, measure in enumerate(measures):
        axes = figure.add_subplot(height, columns, i + 1)
        for x, row in enumerate(row for row in rows if row.measure == measure):
            found = values.get(measure, {}).get(row.run, {})
            axes.plot([x - 0.15] * len(found), list(found.values()), 'o', color='C0', alpha=0.6, markersize=5)
            if row.summary.n:
                half = None if math.isnan(row.summary.half) else row.summary.half
                axes.errorbar(x + 0.1, row.summary.mean, half, fmt='_', color='k', markersize=12, capsize=4)
        axes.set_title(study.measures[measure], fontsize=9)
        axes.set_xticks(range(len(study.runs)), list(study.runs), rotation=20, ha='right', fontsize=8)
        axes.set_xlim(-0.6, len(study.runs) - 0.4)
        axes.grid(axis='y', alpha=0.3)
    figure.suptitle(f'{study.name}: seeds (dots), mean and 95 % interval', fontsize=10)
    return figure


def _save(figure: Figure, path: Path) -> None:
    buffer = io.BytesIO()
    figure.savefig(buffer, format='png', dpi=150)
    atomic_write(path, buffer.getvalue())


def _csv(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator='\n')
    writer.writerow(head)
    writer.writerows(['' if isinstance(c, float) and math.isnan(c) else c for c in row] for row in rows)
    return buffer.getvalue()


def _digits(means: Sequence[float]) -> int:
    """Choose two decimals for percentages and the like, three for correlations, none for large counts."""
    largest = max((abs(m) for m in means if not math.isnan(m)), default=0.0)
    return 0 if largest >= 1000 else 2 if largest >= 2 else 3


def _number(value: float, digits: int, sign: str = '') -> str:
    return f'{value:{sign}.{digits}f}'.replace('-', '−')


def _spread(summary: Summary, digits: int) -> str:
    if not summary.n:
        return '–'
    spread = '' if math.isnan(summary.sd) else f' ± {_number(summary.sd, digits)}'
    return _number(summary.mean, digits) + spread


def _interval(summary: Summary, digits: int, sign: str = '') -> str:
    if math.isnan(summary.half):
        return '–'
    return f'{_number(summary.low, digits, sign)} to {_number(summary.high, digits, sign)}'


def _difference(row: Row, digits: int) -> str:
    if row.difference is None:
        return 'baseline'
    if not row.difference.n:
        return '–'
    text = _number(row.difference.mean, digits, '+')
    if not math.isnan(row.difference.half):
        text += f' ({_interval(row.difference, digits, "+")})'
    return text if row.difference.n == row.summary.n else f'{text}, n = {row.difference.n}'
