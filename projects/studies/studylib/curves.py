"""Loss curves of a study's trainings: one panel per training step, one line per run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import mean

from matplotlib.figure import Figure

from .plan import SHARED, Study
from .results import Job, read_losses

Curves = dict[str, dict[str, list[dict[int, float]]]]
"""Step → run → one curve per seed: iteration → loss."""

SMOOTHING = 10
"""Curves are averaged over this fraction (1 / SMOOTHING): steps of a supernet train different networks."""


def read_curves(runs: Sequence[Sequence[Job]]) -> Curves:
    """Read the losses of every finished training step, except shared ones."""
    curves: Curves = {}
    for job in (job for steps in runs for job in steps if job.run.name != SHARED):
        if job.result() is not None and (losses := read_losses(job.folder)):
            curves.setdefault(job.step.name, {}).setdefault(job.run.name, []).append(losses)
    return curves


def smooth(values: Sequence[float]) -> list[float]:
    """Average each value with those before it, over a tenth of the curve."""
    window = max(1, len(values) // SMOOTHING)
    return [mean(values[max(0, i + 1 - window) : i + 1]) for i in range(len(values))]


def draw_curves(study: Study, curves: Curves) -> Figure:
    """Draw one panel per training step: smoothed mean and range over seeds."""
    columns = min(3, len(curves))
    height = math.ceil(len(curves) / columns)
    figure = Figure(figsize=(4.6 * columns, 3.4 * height), layout='constrained')
    for i, (step, by_run) in enumerate(curves.items()):
        axes = figure.add_subplot(height, columns, i + 1)
        for run in study.runs:
            seeds = by_run.get(run, [])
            steps = sorted(set.intersection(*(set(seed) for seed in seeds))) if seeds else []
            lines = [smooth([seed[at] for at in steps]) for seed in seeds]
            axes.plot(steps, [mean(values) for values in zip(*lines)], label=run)
            axes.fill_between(steps, [min(v) for v in zip(*lines)], [max(v) for v in zip(*lines)], alpha=0.2)
        axes.set(title=step, xlabel='iteration', ylabel='training loss')
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    figure.suptitle(f'{study.name}: mean and range over seeds, running mean', fontsize=10)
    return figure
