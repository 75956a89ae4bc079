"""Report page of a space search: the moves of the space and their effect, in one file."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING
from urllib.parse import quote

from ..spaces import Value, stage_dimensions
from ..utils.fileio import atomic_write
from ..version import __version__
from . import page
from .formats import choice_text, limits_text, plain
from .space import draw_choice_distribution, draw_error_distribution, draw_space_steps
from .svg import inline_svg

if TYPE_CHECKING:
    from ..search.space_quality import SpaceStep, Tendency

_FLAT = 1e-9
"""Smaller slopes are rounding errors."""


def write_space_report(
    path: str | os.PathLike,
    *,
    title: str,
    steps: Sequence[SpaceStep],
    settings: Mapping[str, str],
    constraint: Mapping[str, tuple[float | None, float | None]] | None,
    links: Sequence[tuple[str, str]] = (),
) -> None:
    """Write the report of a space search: one self-contained HTML file, the same bytes for the same input.

    Args:
        path: The file to write.
        title: Heading of the page.
        steps: The spaces, first to last; at least one, each with at least one sample.
        settings: Settings of the search, name → text.
        constraint: Limits of the architectures, cost name → (low, high), None or infinite if open. None: no limits.
        links: (text, path relative to the page) of related files, e.g. the report of the search in the last space.
            Defaults to ().

    Raises:
        SpaceError: The blocks of a stage offer different options.
    """
    files = [page.card('Files', _links(links))] if links else []
    parts = [
        f'<h1>{page.escape(title)}</h1>',
        f'<p class="faint">Limits of the architectures: {page.escape(limits_text(constraint or {}))}.</p>',
        page.tiles(_tiles(steps)),
        '<div class="grid">',
        *_cards(steps),
        *_tendencies(steps),
        # Two cards per row: settings take a whole row if they would be alone.
        page.card('Settings', page.settings(settings), '' if links else 'wide'),
        *files,
        f'</div><footer>vitnas {page.escape(__version__)}</footer>',
    ]
    atomic_write(path, page.page(title, '\n'.join(parts)))


def _tiles(steps: Sequence[SpaceStep]) -> Iterator[tuple[str, str]]:
    first, last = steps[0].quality.et_error, steps[-1].quality.et_error
    if len(steps) > 1:
        yield 'E-T error of the last space', _percent(last)
        yield 'E-T error of the first space', _percent(first)
        yield 'change, in points', f'{last - first:+.2f}'.replace('-', '−')
    else:
        yield 'E-T error of the space', _percent(last)
    yield 'space' if len(steps) == 1 else 'spaces', str(len(steps))
    count = sum(len(step.samples) for step in steps)
    yield 'architecture evaluated' if count == 1 else 'architectures evaluated', f'{count:,}'


def _cards(steps: Sequence[SpaceStep]) -> Iterator[str]:
    """Cards of choices by step, errors by step, the table of spaces, and errors by number of blocks."""
    svg = inline_svg(draw_space_steps(steps), 'steps', 'The choices of every dimension by stage and step')
    yield page.card('How the choices moved', page.plot(svg, 'arch'), 'wide')
    svg = inline_svg(draw_error_distribution(steps), 'errors', 'Distribution of the errors of every space')
    note = 'Fraction of the architectures of a space that have at most this error.'
    yield page.card('Errors of the spaces', page.plot(svg), note=note)
    top = steps[0].top
    note = (
        'Errors in percent. The E-T error is the mean of the expected error, of all architectures, and the top-tier '
        f'error, of the best {f"{top:g}" if top >= 1 else f"{top:.0%}"}.'
    )
    yield page.card('The spaces', _space_table(steps), note=note)
    for number in dict.fromkeys((0, len(steps) - 1)):
        if any(dimension.name == 'depth' for dimension in stage_dimensions(steps[number].space)):
            label = f'Errors by number of blocks, step {number}'
            svg = inline_svg(draw_choice_distribution(steps[number]), f'blocks-{number}', label)
            yield page.card(label, page.plot(svg, 'arch'), 'wide')


def _space_table(steps: Sequence[SpaceStep]) -> str:
    rows = []
    for i, step in enumerate(steps):
        quality = step.quality
        errors = (f'{error:.2f}' for error in (quality.expected, quality.top, quality.et_error))
        rows.append([str(i), _size_text(step.space.size()), f'{quality.count:,}', *errors])
    head = ['step', 'size', 'drawn', 'expected', 'top-tier', 'E-T error']
    return page.table(head, rows, marked=len(rows) - 1)


def _tendencies(steps: Sequence[SpaceStep]) -> Iterator[str]:
    """One table per step, of the dimensions that moved or have a slope."""
    head = ['dimension', 'choices', 'their E-T errors (%)', 'slope w (%)', 'steps', 'moved to']
    for i, step in enumerate(steps):
        if step.tendencies:
            rows = [_tendency_row(found) for found in step.tendencies if found.steps or abs(found.slope) > _FLAT]
            content = page.table(head, rows) if rows else '<p>No dimension has a slope.</p>'
            moved = f'{sum(found.steps != 0 for found in step.tendencies)} of {len(step.tendencies)} dimensions moved'
            yield page.card(f'From step {i} to step {i + 1}: {moved}', content, 'wide long')


def _tendency_row(found: Tendency) -> list[str]:
    errors = ', '.join('–' if quality is None else f'{quality.et_error:.2f}' for quality in found.qualities)
    return [
        page.escape(found.dimension.path),
        _choices(found.dimension.options),
        errors,
        f'{found.slope:+#.3g}'.replace('-', '−'),
        _steps(found.steps) + (f' ({_steps(found.wanted)} wanted)' if found.wanted != found.steps else ''),
        _choices(found.moved) if found.steps else '–',
    ]


def _steps(count: int) -> str:
    return f'{count:+d}'.replace('-', '−') if count else '0'


def _choices(options: Sequence[Value]) -> str:
    return page.escape(', '.join(map(choice_text, options)))


def _links(links: Sequence[tuple[str, str]]) -> str:
    """A list of links; paths are percent-encoded, so that none can be another kind of URL."""
    items = (f'<li><a href="{quote(plain(href, 2000))}">{page.escape(text)}</a></li>' for text, href in links)
    return f'<ul>{"".join(items)}</ul>'


def _size_text(size: int) -> str:
    """Format a number of architectures: 12,288 or 1.2e15; spaces can exceed the largest float."""
    return f'{size:,}' if size < 1_000_000 else f'{Decimal(size):.1e}'.replace('e+', 'e')


def _percent(value: float) -> str:
    return f'{value:.2f} %' if math.isfinite(value) else '–'
