"""The searches of ``algorithms.py``: their file and their table."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from vitnas_core.utils.fileio import atomic_write

from .plan import StudyError
from .statistics import Summary, summarize

NAMES = {
    'random': 'random',
    'half': 'successive halving, half of the images',
    'halving': 'successive halving',
    'evolution': 'evolution',
    'predictor': 'evolution with a predictor',
    'racing': 'evolution with racing',
}
"""Searches and their titles in the table."""


@dataclass(frozen=True)
class Run:
    """One search with one seed.

    Args:
        supernet: Digest of the supernet's weights.
        search: Name of the search.
        seed: Its seed.
        score: Score of the best architecture on all hold-out images.
        test: Its score on the test images.
        images: Number of images that the candidates saw together.
        architectures: Number of different architectures.
        best: Digest of the best architecture.
    """

    supernet: str
    search: str
    seed: int
    score: float
    test: float
    images: int
    architectures: int
    best: str


def read_runs(path: Path, about: Mapping[str, Any]) -> list[Run]:
    """Read the finished searches of a file; none if there is no file.

    Raises:
        StudyError: The file is malformed or of other searches.
    """
    if not path.is_file():
        return []
    try:
        data = json.loads(path.read_text())
        runs = [Run(**run) for run in data.pop('runs')]
    except (ValueError, KeyError, TypeError, AttributeError) as err:
        raise StudyError(f'{path} is not a file of projects/studies/algorithms.py ({err})') from None
    if data != json.loads(json.dumps(about)):
        raise StudyError(f'{path} has searches with other settings; give another --out, or remove it')
    return runs


def write_runs(path: Path, about: Mapping[str, Any], runs: Sequence[Run]) -> None:
    """Write searches, one per line."""
    lines = ',\n  '.join(json.dumps(asdict(run)) for run in runs)
    atomic_write(path, f'{json.dumps(about, indent=1)[:-2]},\n "runs": [\n  {lines}\n ]\n}}\n')


def table(runs: Sequence[Run], baseline: str) -> str:
    """Format one row per search: means, standard deviations per supernet, paired differences with 95 % intervals."""
    by_search: dict[str, dict[tuple[str, int], Run]] = {}
    for run in runs:
        by_search.setdefault(run.search, {})[run.supernet, run.seed] = run
    nets, base = list(dict.fromkeys(run.supernet for run in runs)), by_search.get(baseline, {})
    top = {net: max(run.score for run in runs if run.supernet == net) for net in nets}
    other = f'difference to {NAMES[baseline]}'
    head = ['search', 'architectures', 'images', 'held-out score', other, 'finds the best', 'test score', other]
    lines = ['| ' + ' | '.join(head) + ' |', '|---' * len(head) + '|']
    for name, own in by_search.items():
        scores = [summarize([run.score for run in own.values() if run.supernet == net]) for net in nets]
        images, both = [run.images for run in own.values()], [key for key in own if key in base and name != baseline]
        cells = [NAMES[name], f'{mean(run.architectures for run in own.values()):,.0f}', f'{mean(images):,.0f}']
        cells[2] += f' ({min(images):,} to {max(images):,})' if min(images) < max(images) else ''
        each = ', '.join(map(_spread, scores))
        cells.append(f'{mean(run.score for run in own.values()):.2f} ({each})' if len(nets) > 1 else each)
        cells.append(_interval(summarize([own[key].score - base[key].score for key in both])))
        cells.append(f'{sum(run.score == top[run.supernet] for run in own.values())} of {len(own)}')
        cells.append(f'{mean(run.test for run in own.values()):.1f}')
        cells.append(_interval(summarize([own[key].test - base[key].test for key in both])))
        lines.append('| ' + ' | '.join(cells) + ' |')
    raced, plain = by_search.get('racing', {}), by_search.get('evolution', {})
    if both := [key for key in raced if key in plain]:
        saved = [100 - 100 * raced[key].images / plain[key].images for key in both]
        same = sum(raced[key].best == plain[key].best for key in both)
        lines += ['', f'Racing finds the best architecture of evolution in {same} of {len(both)} searches, with']
        lines[-1] += f' {min(saved):.1f} to {max(saved):.1f} % fewer images.'
    return '\n'.join(lines)


def _spread(summary: Summary) -> str:
    return f'{summary.mean:.2f} ± {summary.sd:.2f}' if summary.n > 1 else f'{summary.mean:.2f}'


def _interval(summary: Summary) -> str:
    text = f'{summary.mean:+.2f} ({summary.low:+.2f} to {summary.high:+.2f})'
    return text.replace('-', '−') if summary.n > 1 else '–'
