"""Results of a step: its measures, and the file that marks it as finished."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from vitnas_core.utils.fileio import atomic_write

from .plan import Run, Step, Study, StudyError

RESULT = 'result.json'
STARTED = 'started.json'
MEASURES = 'measures.json'
_NOT_MEASURED = ('step', 'time', 'data_time', 'memory')


@dataclass(frozen=True)
class Job:
    """A step of a run with its folder in the work dir.

    Args:
        run: The run at its seed.
        step: The step.
        digest: Digest of its settings.
        settings: The digested settings, to explain a mismatch.
        folder: Folder of its files and its result.
    """

    run: Run
    step: Step
    digest: str
    settings: Mapping[str, Any]
    folder: Path

    def result(self) -> dict[str, Any] | None:
        """Return the result, or None if the step is not finished.

        Raises:
            StudyError: The result was made with other settings.
        """
        path = self.folder / RESULT
        if not path.is_file():
            return None
        result = json.loads(path.read_text())
        if result['digest'] != self.digest:
            changes = difference(result['settings'], self.settings) or 'a step before it was'
            raise StudyError(
                f'the result of {self.run.title}, step {self.step.name}, was made with other settings ({changes}); '
                f'give another --work-dir, or remove {self.folder} and the steps after it'
            )
        return result

    def begin(self) -> int:
        """Note the start of the step; start over if it was begun with other settings.

        Returns:
            Number of starts with these settings, including this one.
        """
        path, starts = self.folder / STARTED, 0
        if path.is_file():
            begun = json.loads(path.read_text())
            starts = begun['starts'] if begun['digest'] == self.digest else 0
            if not starts:
                shutil.rmtree(self.folder)
        atomic_write(path, json.dumps({'digest': self.digest, 'starts': starts + 1}))
        return starts + 1

    def finish(self, seconds: float, starts: int) -> dict[str, Any]:
        """Write the result, the last file of a step.

        Returns:
            The result.

        Raises:
            StudyError: The step's measures cannot be read.
        """
        result = {
            'digest': self.digest,
            'measures': read_measures(self.folder),
            'seconds': round(seconds, 2),
            'starts': starts,
            'settings': self.settings,
        }
        atomic_write(self.folder / RESULT, json.dumps(result, indent=1))
        return result


def list_jobs(study: Study, work_dir: Path) -> list[list[Job]]:
    """List the steps of every run in order, one list per run."""
    jobs: dict[Path, list[Job]] = {run.folder: [] for run in study.all_runs()}
    for run, step, digest, settings in study.digests():
        jobs[run.folder].append(Job(run, step, digest, settings, work_dir / run.folder / step.name))
    return list(jobs.values())


def read_measures(folder: Path) -> dict[str, float]:
    """Read the measures of a step: ``measures.json`` or, for a training, the scalars of its last validation.

    A training also has ``iteration_seconds``, the mean over its log, and ``train_loss``, the mean over the last quarter
    of its log.

    Raises:
        StudyError: ``measures.json`` is not an object of numbers.
    """
    path = folder / MEASURES
    if not path.is_file():
        return _read_scalars(folder)
    try:
        measures = json.loads(path.read_text())
        return {str(name): float(value) for name, value in measures.items() if value is not None}
    except (ValueError, TypeError, AttributeError):
        raise StudyError(f'{path} should be an object of names and numbers') from None


def write_measures(path: Path, measures: Mapping[str, float]) -> None:
    """Write the measures of a script; values that are not finite are left out."""
    atomic_write(path, json.dumps({name: value for name, value in measures.items() if math.isfinite(value)}, indent=1))


def read_losses(folder: Path) -> dict[int, float]:
    """Read the logged losses of a training by iteration; empty if it logged none."""
    return {record['step']: record['loss'] for record in _records(folder) if {'lr', 'loss', 'step'} <= record.keys()}


def _records(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the log records of mmengine over all starts of a training."""
    for path in sorted(folder.glob('*/vis_data/scalars.json')):  # named by the time of the start
        for line in path.read_text().splitlines():
            try:
                yield json.loads(line)
            except json.JSONDecodeError:
                continue  # incomplete after a kill


def _read_scalars(folder: Path) -> dict[str, float]:
    """Read the last validation record and means over the training records."""
    last: dict[str, float] = {}
    times: list[float] = []
    for record in _records(folder):
        if 'lr' in record:
            times += [record['time']] if 'time' in record else []
        else:
            last = {name: value for name, value in record.items() if name not in _NOT_MEASURED}
    found = {name: float(value) for name, value in last.items() if isinstance(value, (int, float))}
    if times:
        found['iteration_seconds'] = mean(times)
    if losses := list(read_losses(folder).values()):
        found['train_loss'] = mean(losses[-max(1, len(losses) // 4) :])
    return found


def difference(old: Any, new: Any, limit: int = 3) -> str:
    """Say which settings changed; empty if none did."""
    a, b = flatten(old), flatten(new)
    names = [name for name in [*a, *(n for n in b if n not in a)] if a.get(name, '…') != b.get(name, '…')]
    words = [f'{name} was {a.get(name, "not set")}, is {b.get(name, "not set")}' for name in names[:limit]]
    return '; '.join(words) + (f'; and {len(names) - limit} more' if len(names) > limit else '')


def flatten(data: Any, path: str = '') -> dict[str, Any]:
    """Flatten nested data into one dict of dotted names."""
    if isinstance(data, Mapping):
        items = [(f'{path}.{key}' if path else str(key), value) for key, value in data.items()]
    elif isinstance(data, (list, tuple)):
        items = [(f'{path}[{i}]', value) for i, value in enumerate(data)]
    else:
        return {path: data}
    return {name: leaf for key, value in items for name, leaf in flatten(value, key).items()}
