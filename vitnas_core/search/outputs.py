"""Files that a search writes into its work dir: the winner, the Pareto front, the picture and the report."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..training.hooks import read_report
from ..utils.fileio import atomic_write
from .candidate import Candidate, ranked
from .pareto import pareto_front


def write_results(folder: str | Path, candidates: Sequence[Candidate], cost: str = 'macs') -> Candidate:
    """Write ``best_arch.json`` and ``pareto.json``; return the best candidate.

    Args:
        folder: The work dir.
        candidates: Evaluated candidates; at least one that is complete, on all hold-out images.
        cost: Cost of the front. Defaults to 'macs'.
    """
    best = ranked(candidates)[0]
    front = pareto_front(candidates, cost)
    rows = [{'id': c.id, 'score': c.score, 'cost': c.cost, 'arch': c.arch.to_dict()} for c in front]
    atomic_write(Path(folder) / 'pareto.json', json.dumps(rows, indent=1) + '\n')
    atomic_write(Path(folder) / 'best_arch.json', best.arch.to_json() + '\n')
    return best


def save_figure(figure: Any, path: Path) -> None:
    """Write a matplotlib figure as PNG."""
    from ..visualization import save_png  # matplotlib is not needed to search

    save_png(figure, path)


def write_pictures(
    folder: str | Path,
    candidates: Sequence[Candidate],
    *,
    title: str,
    limits: Mapping[str, tuple[float | None, float | None]],
    metric: str,
    settings: Mapping[str, str],
    training_csv: Path,
    baselines: Sequence[tuple[str, float, Mapping[str, float]]] = (),
    cost: str = 'macs',
) -> None:
    """Write ``pareto.png`` and ``report.html``.

    Args:
        folder: The work dir.
        candidates: Evaluated candidates.
        title: Title of the report.
        limits: Limits of the search, by cost.
        metric: Name of the score.
        settings: Settings of the search for the report, name → text.
        training_csv: Report of the supernet's training; may be missing.
        baselines: (name, score, costs) of networks to show beside the candidates. Defaults to none.
        cost: Cost of the front. Defaults to 'macs'.
    """
    from ..visualization import draw_pareto, save_png, write_report  # matplotlib is not needed to search

    folder, best, front = Path(folder), ranked(candidates)[0], pareto_front(candidates, cost)
    figure = draw_pareto(candidates, front, best, cost, limits.get(cost), metric, baselines)
    save_png(figure, folder / 'pareto.png')
    write_report(
        folder / 'report.html',
        title=title,
        candidates=candidates,
        front=front,
        best=best,
        settings=settings,
        constraint=limits,
        metric=metric,
        baselines=baselines,
        cost=cost,
        training_csv=training_csv if training_csv.is_file() and read_report(training_csv) else None,
    )
