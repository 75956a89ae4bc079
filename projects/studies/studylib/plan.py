"""Study files: runs, their steps, and the settings and digest of each step."""

from __future__ import annotations

import copy
import hashlib
import json
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mmengine.config import Config

from vitnas_core.errors import VitnasError

ROOT = Path(__file__).resolve().parents[3]
"""The repository. Scripts run here; paths in a study are relative to it."""

TRAIN = 'tools/train.py'
SHARED = 'shared'

_FORMER = {f'projects/studies/{name}': f'tools/benchmarks/{name}' for name in ('score.py', 'truth.py')}
"""Former places of scripts. Studies may still name them, and digests do: results of that time stay valid."""
_PROJECTS = 'projects.'
"""Prefix of imports that digests leave out: the code of projects was once part of ``vitnas_core``."""
_PLACE = re.compile(r'\{(\w+)(\.checkpoint)?\}')
_WORD = re.compile(r'\w[\w.+-]*')
_OWN = ('seed', 'dir', 'config', 'jobs')
_PARSING = threading.Lock()
"""Lock: for toolbox configs, mmengine reads the list of installed packages, which fails in two threads at once."""


class StudyError(VitnasError):
    """A study file, a truth file or results in a work dir are unusable."""


@dataclass(frozen=True)
class Step:
    """One process of a run.

    Args:
        name: Its name in later steps and measures.
        script: The Python file to run. Defaults to 'tools/train.py', which gets the config and the step's folder.
        config: A config file. It is written into the step's folder with the overrides and the seed; scripts other than
            tools/train.py find it as ``{config}``.
        overrides: Changes to the config as in ``--cfg-options``: dotted names, or nested dicts, also with
            ``_delete_=True``.
        args: Arguments of the script. Placeholders are filled in here and in the overrides: ``{seed}``, ``{dir}`` (the
            step's folder), ``{config}``, ``{NAME}`` (folder of an earlier or shared step), ``{NAME.checkpoint}`` (its
            last checkpoint) and ``{jobs}``.
    """

    name: str
    script: str = TRAIN
    config: str | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict)
    args: tuple[str, ...] = ()

    @classmethod
    def read(cls, data: Any, where: str) -> Step:
        """Read a step of a study file.

        Raises:
            StudyError: A key is missing or misspelt, or a file is not there.
        """
        if not isinstance(data, Mapping):
            raise StudyError(f'{where} should be a dict with a name, but got {data!r}')
        unknown = set(data) - set(cls.__dataclass_fields__)
        if unknown or 'name' not in data:
            what = f'has {", ".join(sorted(unknown))}' if unknown else 'has no name'
            raise StudyError(f'{where} {what}; a step has {", ".join(cls.__dataclass_fields__)}')
        moved = {former: script for script, former in _FORMER.items()}.get(data.get('script', TRAIN))
        data = {**data, 'args': tuple(str(arg) for arg in data.get('args', ()))}
        step = cls(**(data if moved is None else {**data, 'script': moved}))
        if not re.fullmatch(r'\w+', step.name) or step.name in _OWN:
            raise StudyError(f'{where}.name should be a word other than {", ".join(_OWN)}, but got {step.name!r}')
        if step.script == TRAIN and (step.config is None or step.args):
            raise StudyError(f'{where} runs {TRAIN}, so it should have a config and no args')
        for path in (step.script, step.config):
            if path is not None and not (ROOT / path).is_file():
                raise StudyError(f'{where} names the file {path}, which is not there')
        return step

    def resolve(self, seed: int) -> Config | None:
        """Return the config with overrides and seed, placeholders unfilled."""
        if self.config is None:
            return None
        with _PARSING:
            cfg = Config.fromfile(ROOT / self.config)
        cfg.merge_from_dict(copy.deepcopy(dict(self.overrides)))  # a copy: mmengine removes every `_delete_`
        cfg.merge_from_dict({'randomness': dict(seed=seed)})
        return cfg

    def settings(self, seed: int) -> dict[str, Any]:
        """Return all settings that decide the result, except the code and results of earlier steps."""
        cfg = self.resolve(seed)
        script = _FORMER.get(self.script, self.script)
        settings: dict[str, Any] = {'script': script, 'args': list(self.args), 'seed': seed}
        if cfg is not None:
            settings['config'] = json.loads(json.dumps(cfg.to_dict(), default=str))
            if imports := settings['config'].get('custom_imports', {}).get('imports'):
                imports[:] = [name for name in imports if not name.startswith(_PROJECTS)]
        return settings


@dataclass(frozen=True)
class Run:
    """A named list of steps at one seed."""

    name: str
    seed: int
    steps: tuple[Step, ...]

    @property
    def folder(self) -> Path:
        """Folder of the results, relative to the work dir."""
        return Path(SHARED) if self.name == SHARED else Path(self.name) / f'seed_{self.seed}'

    @property
    def title(self) -> str:
        """Name in progress lines and errors."""
        return SHARED if self.name == SHARED else f'{self.name}, seed {self.seed}'


@dataclass(frozen=True)
class Study:
    """A study: runs to compare, seeds, and measures to tabulate.

    Args:
        name: Its title.
        shared: Steps that run once, before the runs, such as the truth.
        runs: Name → steps.
        seeds: Each run is done once per seed.
        baseline: The run to compare with.
        measures: ``'STEP.MEASURE'`` → its name in the table.
    """

    name: str
    shared: tuple[Step, ...]
    runs: Mapping[str, tuple[Step, ...]]
    seeds: tuple[int, ...]
    baseline: str
    measures: Mapping[str, str]

    @classmethod
    def from_file(cls, path: Path, seeds: Sequence[int] | None = None) -> Study:
        """Read a study file.

        Args:
            path: The Python config.
            seeds: Replace those of the file.

        Raises:
            StudyError: The study is incomplete or wrong; the message names the file.
        """
        if not path.is_file():
            raise StudyError(f'there is no study file {path}')
        data = Config.fromfile(path).to_dict()
        try:
            return cls._read(path.stem, data, seeds)
        except StudyError as err:
            raise StudyError(f'{err} ({path})') from None

    @classmethod
    def _read(cls, name: str, data: Mapping[str, Any], seeds: Sequence[int] | None) -> Study:
        for key in ('runs', 'seeds', 'baseline', 'measures'):
            if not data.get(key):
                raise StudyError(f'a study should have {key}')
        runs: dict[str, tuple[Step, ...]] = {}
        for i, entry in enumerate(data['runs']):
            if isinstance(entry, (list, tuple)) and len(entry) == 3:  # (name, config, overrides)
                entry = dict(name=entry[0], steps=[dict(name='train', config=entry[1], overrides=entry[2])])
            if not isinstance(entry, Mapping) or set(entry) != {'name', 'steps'}:
                raise StudyError(f'runs[{i}] should be dict(name, steps) or (name, config, overrides), not {entry!r}')
            if not _WORD.fullmatch(str(entry['name'])) or entry['name'] in (*runs, SHARED):
                raise StudyError(f'runs[{i}].name should be a word that no other run has, but got {entry["name"]!r}')
            runs[entry['name']] = _read_steps(entry['steps'], f'runs[{i}].steps')
        if data['baseline'] not in runs:
            raise StudyError(f'baseline should be one of {", ".join(runs)}, but got {data["baseline"]!r}')
        title, seeds = str(data.get('title', name)), tuple(data['seeds'] if seeds is None else seeds)
        shared = _read_steps(data.get('shared', []), 'shared')
        study = cls(title, shared, runs, seeds, data['baseline'], dict(data['measures']))
        study._check()
        return study

    def _check(self) -> None:
        if len(set(self.seeds)) < len(self.seeds) or any(type(seed) is not int or seed < 0 for seed in self.seeds):
            raise StudyError(f'seeds should be different whole numbers of at least 0, but got {list(self.seeds)}')
        names = {step.name for steps in self.runs.values() for step in steps}
        if both := names & {step.name for step in self.shared}:
            raise StudyError(f'{sorted(both)[0]} is the name of a shared step and of a step of a run; give two names')
        for key in self.measures:
            if key.partition('.')[0] not in names:
                raise StudyError(f'measures has {key!r}; it should begin with a step: {", ".join(sorted(names))}')
        for _ in self.digests():
            pass

    def all_runs(self) -> list[Run]:
        """List the shared steps, then all runs of the first seed, of the second, and so on."""
        shared = [Run(SHARED, 0, self.shared)] if self.shared else []
        return shared + [Run(name, seed, steps) for seed in self.seeds for name, steps in self.runs.items()]

    def digests(self) -> Iterator[tuple[Run, Step, str, dict[str, Any]]]:
        """Yield each step with a digest of its settings and of the steps whose results it reads."""
        shared: dict[str, str] = {}
        for run in self.all_runs():
            known = shared if run.name == SHARED else dict(shared)
            for step in run.steps:
                settings = step.settings(run.seed)
                used = {name: known[name] for name in _references(step, settings, known)}
                text = json.dumps([settings, used], sort_keys=True)
                known[step.name] = hashlib.sha256(text.encode()).hexdigest()[:16]
                yield run, step, known[step.name], settings


def _read_steps(data: Any, where: str) -> tuple[Step, ...]:
    if not isinstance(data, (list, tuple)):
        raise StudyError(f'{where} should be a list of steps, but got {data!r}')
    steps = tuple(Step.read(entry, f'{where}[{i}]') for i, entry in enumerate(data))
    if len({step.name for step in steps}) < len(steps):
        raise StudyError(f'{where} should have different names, but got {", ".join(step.name for step in steps)}')
    return steps


def _references(step: Step, settings: Mapping[str, Any], known: Mapping[str, str]) -> list[str]:
    """List the earlier steps that a step names, sorted."""
    found = {match[1] for text in _strings([settings['args'], step.overrides]) for match in _PLACE.finditer(text)}
    unknown = found - set(known) - set(_OWN)
    if unknown:
        raise StudyError(
            f'the step {step.name} names {{{sorted(unknown)[0]}}}; it can name {", ".join([*_OWN, *known])}'
        )
    return sorted(found - set(_OWN))


def _strings(data: Any) -> Iterator[str]:
    if isinstance(data, str):
        yield data
    elif isinstance(data, Mapping):
        for value in data.values():
            yield from _strings(value)
    elif isinstance(data, (list, tuple)):
        for value in data:
            yield from _strings(value)


def fill(data: Any, places: Mapping[str, str]) -> Any:
    """Fill ``{NAME}`` and ``{NAME.checkpoint}`` into every string of nested data.

    Raises:
        StudyError: A step whose checkpoint is asked for has none.
    """
    if isinstance(data, str):
        return _PLACE.sub(lambda match: _place(match, places), data)
    if isinstance(data, Mapping):
        return {key: fill(value, places) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return type(data)(fill(value, places) for value in data)
    return data


def _place(match: re.Match, places: Mapping[str, str]) -> str:
    if match[1] not in places:
        return match[0]
    if not match[2]:
        return places[match[1]]
    pointer = Path(places[match[1]]) / 'last_checkpoint'
    if not pointer.is_file():
        raise StudyError(f'{match[0]} is asked for, but {pointer.parent} has no checkpoint')
    return pointer.read_text().strip()
