"""Progress of a study: one line per finished step and, on a terminal, a bar below."""

from __future__ import annotations

import sys
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import mean

from .plan import SHARED
from .results import Job

_WIDTH = 30


class Progress:
    """Count finished steps and estimate the time left.

    Args:
        runs: The steps of each run.
        jobs: Number of runs at once.
    """

    def __init__(self, runs: Sequence[Sequence[Job]], jobs: int) -> None:
        self.jobs = jobs
        self.waiting: dict[str, Job] = {}
        self.seconds: dict[str, list[float]] = defaultdict(list)
        self.total = sum(len(steps) for steps in runs)
        self.shared = {job.step.name for steps in runs for job in steps if job.run.name == SHARED}
        for job in (job for steps in runs for job in steps):
            result = job.result()
            if result is None:
                self.waiting[str(job.folder)] = job
            else:
                self.seconds[job.step.name].append(result['seconds'])
        self.began = time.monotonic()
        self._guard = threading.Lock()
        done = self.total - len(self.waiting)
        if done:
            print(f'{done} of {self.total} steps were finished before', flush=True)

    def begin_shared(self, steps: Sequence[Job]) -> None:
        """Say where to watch the shared steps, if one is left to run."""
        if any(str(job.folder) in self.waiting for job in steps):
            logs = steps[0].folder.parent / '*' / 'log.txt'
            print(f'shared steps run first; what they print is in {logs}', flush=True)

    def finished(self, job: Job, seconds: float, measures: Mapping[str, float]) -> None:
        """Say that a step is done."""
        with self._guard:
            self.waiting.pop(str(job.folder), None)
            self.seconds[job.step.name].append(seconds)
            some = ', '.join(f'{name} {value:.4g}' for name, value in list(measures.items())[:3])
            self._say(f'{job.run.title}: {job.step.name} in {clock(seconds)}{" (" + some + ")" if some else ""}')

    def failed(self, job: Job, reason: str) -> None:
        """Say that a step failed and drop the later steps of its run."""
        with self._guard:
            for folder, other in list(self.waiting.items()):
                if other.run.folder == job.run.folder:
                    del self.waiting[folder]
            self._say(f'{job.run.title}: {job.step.name} FAILED, {reason}')

    def left(self) -> float | None:
        """Estimate the seconds left from earlier steps of the same name, or from the mean of all; None if unknown."""
        # A shared step, such as the truth, may take longer than all others together, so it does not count.
        known = [seconds for name, times in self.seconds.items() if name not in self.shared for seconds in times]
        if not known:
            return None if self.waiting else 0.0
        expected = [mean(self.seconds[job.step.name] or known) for job in self.waiting.values()]
        return sum(expected) / min(self.jobs, max(1, len({job.run.folder for job in self.waiting.values()})))

    def close(self) -> None:
        """End the line of the bar."""
        if sys.stdout.isatty():
            print(flush=True)

    def _say(self, line: str) -> None:
        done = self.total - len(self.waiting)
        left = self.left()
        times = f'elapsed {clock(time.monotonic() - self.began)}'
        times += '' if left is None else f', about {clock(left)} left'
        if not sys.stdout.isatty():
            print(f'[{done}/{self.total}] {line}; {times}', flush=True)
            return
        filled = round(_WIDTH * done / max(1, self.total))
        bar = f'[{"=" * filled}{" " * (_WIDTH - filled)}] {done}/{self.total}, {times}'
        print(f'\r\x1b[K{line}\n{bar}', end='', flush=True)


def clock(seconds: float) -> str:
    """Format seconds as ``m:ss`` or ``h:mm:ss``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f'{hours}:{minutes:02}:{rest:02}' if hours else f'{minutes}:{rest:02}'
