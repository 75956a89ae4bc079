"""What a step left in its folder: its measures, and the result file that says it is finished."""

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
    """A step of a run with its place in the work dir.

    Args:
        run: The run at its seed.
        step: The step.
        digest: The name of its settings.
        settings: What is digested, for the words of an error.
        folder: Where it runs and leaves its result.
    """

    run: Run
    step: Step
    digest: str
    settings: Mapping[str, Any]
    folder: Path

    def result(self) -> dict[str, Any] | None:
        """The result, or None where the step is not finished.

        Raises:
            StudyError: It was made with other settings.
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
        """Note the start of the step, and start over what was begun with other settings.

        Returns:
            How often it was started with these settings, this time included.
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
    """The steps of every run, in order; a list a run."""
    jobs: dict[Path, list[Job]] = {run.folder: [] for run in study.all_runs()}
    for run, step, digest, settings in study.digests():
        jobs[run.folder].append(Job(run, step, digest, settings, work_dir / run.folder / step.name))
    return list(jobs.values())


def read_measures(folder: Path) -> dict[str, float]:
    """What a step measured: its ``measures.json`` or, of a training, the last validation's scalars.

    A training also has ``iteration_seconds``, the mean of what its log says of the last ten before each line, and
    ``train_loss``, the mean over the last quarter of its lines.

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
    """Write the file in which a script leaves its measures; what is not a number is left out."""
    atomic_write(path, json.dumps({name: value for name, value in measures.items() if math.isfinite(value)}, indent=1))


def read_losses(folder: Path) -> dict[int, float]:
    """The loss of a training by its iteration, as logged; empty where the step logged none."""
    return {record['step']: record['loss'] for record in _records(folder) if {'lr', 'loss', 'step'} <= record.keys()}


def _records(folder: Path) -> Iterator[dict[str, Any]]:
    """What mmengine logged, over every start of a training."""
    for path in sorted(folder.glob('*/vis_data/scalars.json')):  # named by the time of the start
        for line in path.read_text().splitlines():
            try:
                yield json.loads(line)
            except json.JSONDecodeError:
                continue  # torn by a kill


def _read_scalars(folder: Path) -> dict[str, float]:
    """The last record of a validation, and means over those of the training."""
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
    """Which settings changed, in words; empty where none did."""
    a, b = flatten(old), flatten(new)
    names = [name for name in [*a, *(n for n in b if n not in a)] if a.get(name, '…') != b.get(name, '…')]
    words = [f'{name} was {a.get(name, "not set")}, is {b.get(name, "not set")}' for name in names[:limit]]
    return '; '.join(words) + (f'; and {len(names) - limit} more' if len(names) > limit else '')


def flatten(data: Any, path: str = '') -> dict[str, Any]:
    """Nested data as one dict of dotted names."""
    if isinstance(data, Mapping):
        items = [(f'{path}.{key}' if path else str(key), value) for key, value in data.items()]
    elif isinstance(data, (list, tuple)):
        items = [(f'{path}[{i}]', value) for i, value in enumerate(data)]
    else:
        return {path: data}
    return {name: leaf for key, value in items for name, leaf in flatten(value, key).items()}
