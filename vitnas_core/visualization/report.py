"""``report.html``: the results of a search in one file that opens offline."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ..spaces import Arch
from ..utils.fileio import atomic_write
from ..version import __version__
from . import page
from .arch import draw_arch
from .formats import Baseline, cost_label, cost_text, duration_text, in_percent, limits_text, score_text
from .pareto import draw_pareto, full, partial
from .progress import draw_progress
from .svg import inline_svg
from .training import draw_training

if TYPE_CHECKING:
    from ..search.candidate import Candidate

_TOP = 20
"""Number of best candidates in the list."""
_MOST_FRONT = 100
"""Largest number of front candidates in the list; pareto.json has all of them."""


def write_report(
    path: str | os.PathLike,
    *,
    title: str,
    candidates: Sequence[Candidate],
    front: Sequence[Candidate],
    best: Candidate,
    settings: Mapping[str, str],
    constraint: Mapping[str, tuple[float | None, float | None]] | None,
    metric: str,
    training_csv: str | os.PathLike | None = None,
    baselines: Sequence[Baseline] = (),
    cost: str = 'macs',
) -> None:
    """Write the report of a search: one self-contained HTML file, the same bytes for the same input.

    Args:
        path: The file to write.
        title: Heading of the page.
        candidates: All evaluated candidates.
        front: The Pareto front of score and cost.
        best: The winner.
        settings: Settings of the search, name → text.
        constraint: Limits of the search, cost name → (low, high), None or infinite for no bound. None: no limits.
        metric: Name of the score, e.g. 'accuracy/top1'.
        training_csv: The supernet's ``supernet_report.csv``, to show its curves. Defaults to None: no curves.
        baselines: Networks to compare with, e.g. largest, smallest, random. Defaults to ().
        cost: Name of the front's cost. Defaults to 'macs'.

    Raises:
        VitnasError: The CSV is malformed, or a candidate lacks a cost.
    """
    limits = constraint or {}
    costs = [name for name in ('macs', 'params', 'latency') if name in best.cost]
    rest = []
    if training_csv is not None:
        curves = inline_svg(draw_training(training_csv), 'training', 'Training curves of the supernet')
        rest.append(page.card('Training of the supernet', page.plot(curves)))
    plots = list(_plots(candidates, front, best, limits, metric, baselines, cost))
    rest = plots[2:] + rest
    # Two cards per row: the last one takes a whole row if it would be alone.
    rest.append(page.card('Settings', page.settings(settings), '' if len(rest) % 2 else 'wide'))
    parts = [
        f'<h1>{page.escape(title)}</h1>',
        f'<p class="faint">Limits of the search: {page.escape(limits_text(limits))}.</p>',
        page.tiles(_tiles(candidates, best, costs, metric)),
        '<div class="grid">',
        *([page.card('Compared with', _comparison(best, baselines, costs, metric), 'wide')] if baselines else []),
        *plots[:2],
        page.card('The winner, block by block', page.plot(_winner(best, metric), 'arch'), 'wide'),
        *rest,
        *_tables(candidates, front, best, costs, metric, cost),
        f'</div><footer>vitnas {page.escape(__version__)}</footer>',
    ]
    atomic_write(path, page.page(title, '\n'.join(parts)))


def _tiles(
    candidates: Sequence[Candidate], best: Candidate, costs: Sequence[str], metric: str
) -> Iterator[tuple[str, str]]:
    yield f"winner's {metric}", score_text(metric, best.score)
    for name in costs:
        yield cost_label(name), cost_text(name, best.cost[name])
    parts = sum(map(partial, candidates))
    label = 'candidate evaluated' if len(candidates) == 1 else 'candidates evaluated'
    yield label + (f', {parts:,} of them in part' if parts else ''), f'{len(candidates):,}'
    yield 'spent on evaluation', duration_text(sum(c.seconds for c in candidates))


def _plots(
    candidates: Sequence[Candidate],
    front: Sequence[Candidate],
    best: Candidate,
    limits: Mapping[str, tuple[float | None, float | None]],
    metric: str,
    baselines: Sequence[Baseline],
    cost: str,
) -> Iterator[str]:
    """Cards of score over the front's cost, of progress, and of score over each other limited cost."""
    figure = draw_pareto(candidates, front, best, cost, limits.get(cost), metric, baselines)
    label = f'{metric} over {cost_label(cost)}: every candidate, the Pareto front and the winner'
    yield page.card('Score and cost', page.plot(inline_svg(figure, 'pareto', label)))
    svg = inline_svg(draw_progress(candidates, metric), 'progress', f'{metric} by generation')
    yield page.card('Progress of the search', page.plot(svg))
    for i, other in enumerate(name for name in limits if name != cost):
        if all(other in c.cost for c in (*candidates, best)):
            # The front belongs to another cost, so this plot has only candidates, limit and winner.
            figure = draw_pareto(candidates, (), best, other, limits[other], metric, baselines)
            svg = inline_svg(figure, f'cost-{i}', f'{metric} over {cost_label(other)}')
            yield page.card(f'Score and {_in_a_sentence(other)}', page.plot(svg))


def _winner(best: Candidate, metric: str) -> str:
    title = f'Candidate {best.id}: {score_text(metric, best.score)}'
    return inline_svg(draw_arch(best.arch, title), 'winner', 'The architecture of the winner, block by block')


def _comparison(best: Candidate, baselines: Sequence[Baseline], costs: Sequence[str], metric: str) -> str:
    rows: list[list[str]] = []
    for name, score, cost in (('winner', best.score, best.cost), *baselines):
        gap = score - best.score
        digits = 2 if in_percent(metric) else 4
        difference = f'{gap:+.{digits}f}'.replace('-', '−') if math.isfinite(gap) and rows else '–'
        cells = [cost_text(key, cost.get(key)) for key in costs]
        rows.append([page.escape(name, 60), score_text(metric, score), difference, *cells])
    return page.table(['network', metric, 'to the winner', *map(cost_label, costs)], rows, marked=0)


def _tables(
    candidates: Sequence[Candidate],
    front: Sequence[Candidate],
    best: Candidate,
    costs: Sequence[str],
    metric: str,
    cost: str,
) -> Iterator[str]:
    ordered = sorted(front, key=lambda c: (c.cost[cost], -c.score))
    note = f'The cheapest {_MOST_FRONT} of them; pareto.json has all.' if len(front) > _MOST_FRONT else ''
    content = _candidate_table(ordered[:_MOST_FRONT], best, costs, metric)
    yield page.card(f'Pareto front of score and {_in_a_sentence(cost)} ({len(front):,})', content, 'wide long', note)
    top = sorted(filter(full, candidates), key=lambda c: (-c.score, c.cost['macs'], c.id))[:_TOP]
    yield page.card(f'The best {len(top)}', _candidate_table(top, best, costs, metric), 'wide long')


def _in_a_sentence(cost: str) -> str:
    return cost_label(cost) if cost == 'macs' else cost_label(cost).lower()


def _candidate_table(rows: Sequence[Candidate], best: Candidate, costs: Sequence[str], metric: str) -> str:
    cells = [
        [
            str(c.id), str(c.generation), score_text(metric, c.score), *(cost_text(k, c.cost.get(k)) for k in costs),
            page.details('show', arch_text(c.arch)),
        ]
        for c in rows
    ]  # fmt: skip
    marked = next((i for i, c in enumerate(rows) if c.id == best.id), -1)
    return page.table(
        ['id', 'generation', metric, *map(cost_label, costs), 'architecture'], cells, marked, 'candidates'
    )


def arch_text(arch: Arch) -> str:
    """Format an architecture as JSON with one line per block, ready to copy into an architecture file."""
    data = arch.to_dict()
    stages = []
    for stage in data.pop('stages'):
        blocks = ',\n    '.join(json.dumps(block) for block in stage.pop('blocks'))
        start = ''.join(f'{json.dumps(k)}: {json.dumps(v)}, ' for k, v in stage.items())
        stages.append(f'  {{{start}"blocks": [' + (f'\n    {blocks}]}}' if blocks else ']}'))
    start = ''.join(f'{json.dumps(k)}: {json.dumps(v)}, ' for k, v in data.items())
    return f'{{{start}"stages": [\n' + ',\n'.join(stages) + ']}'
