"""How the losses of a study's trainings fell: a panel a training step, a line a run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import mean

from matplotlib.figure import Figure

from .plan import SHARED, Study
from .results import Job, read_losses

Curves = dict[str, dict[str, list[dict[int, float]]]]
"""Step → run → a curve a seed: iteration → loss."""

SMOOTHING = 10
"""The share of a curve that is averaged is one over this: single steps of a supernet are of different networks."""


def read_curves(runs: Sequence[Sequence[Job]]) -> Curves:
    """The losses of every finished step that trains, but for shared ones."""
    curves: Curves = {}
    for job in (job for steps in runs for job in steps if job.run.name != SHARED):
        if job.result() is not None and (losses := read_losses(job.folder)):
            curves.setdefault(job.step.name, {}).setdefault(job.run.name, []).append(losses)
    return curves


def smooth(values: Sequence[float]) -> list[float]:
    """The mean of each value and those before it, over a tenth of the curve."""
    window = max(1, len(values) // SMOOTHING)
    return [mean(values[max(0, i + 1 - window) : i + 1]) for i in range(len(values))]


def draw_curves(study: Study, curves: Curves) -> Figure:
    """A panel a training step: the mean of the seeds, smoothed, and the range that they span."""
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
