"""Run the steps of a study: one process per step, several runs at once, no finished step again."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from vitnas_core.errors import VitnasError

from .plan import ROOT, SHARED, TRAIN, StudyError, fill
from .progress import Progress
from .results import Job

try:
    import fcntl
except ImportError:  # not on Windows: two studies in one folder are then not noticed
    fcntl = None  # type: ignore[assignment]  # a module or nothing

_PATIENCE = 10.0
"""Seconds to wait for processes of a killed study to end."""


@dataclass(frozen=True)
class Failure:
    """A failed step, the reason, and its log."""

    job: Job
    reason: str

    @property
    def log(self) -> Path:
        """Output of the process."""
        return self.job.folder / 'log.txt'


def execute(
    runs: Sequence[Sequence[Job]], work_dir: Path, jobs: int, after_run: Callable[[], object] = lambda: None
) -> list[Failure]:
    """Run every step that has no result yet.

    Shared steps run first, one after another. Then up to ``jobs`` runs go at once, each with its steps in order. A run
    that fails does not stop the others.

    Args:
        runs: The steps of each run, as :func:`list_jobs` gives them.
        work_dir: Folder of the lock.
        jobs: Number of processes at once.
        after_run: Called after every run, e.g. to write the table so far. Defaults to nothing.

    Returns:
        The failed steps; empty if all is well.

    Raises:
        StudyError: A result was made with other settings, or another process works in the folder.
    """
    with hold(work_dir) as lock:
        for job in (job for steps in runs for job in steps):
            job.result()  # refuses a changed setting before anything runs
        executor = _Executor(jobs, lock, Progress(runs, jobs), after_run)
        shared = [steps for steps in runs if steps and steps[0].run.name == SHARED]
        for steps in shared:
            executor.progress.begin_shared(steps)
            executor.run(steps)
        if not executor.failures:
            executor.run_all([steps for steps in runs if steps and steps[0].run.name != SHARED])
        executor.progress.close()
        return executor.failures


@contextlib.contextmanager
def hold(folder: Path) -> Iterator[int]:
    """Lock a folder against other studies while this process or one of its children lives.

    Yields:
        The open file that holds the lock; a child that inherits it holds the lock too.

    Raises:
        StudyError: The folder is in use.
    """
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder / '.lock', os.O_RDWR | os.O_CREAT, 0o644)
    try:
        end = time.monotonic() + _PATIENCE
        while fcntl is not None:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise StudyError(
                        f'another study, or a process that a killed one left, works in {folder}; wait for it to end'
                    ) from None
                time.sleep(0.2)
        yield descriptor
    finally:
        os.close(descriptor)


class _Executor:
    """The processes of one study."""

    def __init__(self, jobs: int, lock: int, progress: Progress, after_run: Callable[[], object]) -> None:
        self.jobs = jobs
        self.lock = lock
        self.progress = progress
        self.after_run = after_run
        self.failures: list[Failure] = []
        self._processes: set[subprocess.Popen] = set()
        self._guard = threading.Lock()
        self._stopped = False

    def run_all(self, runs: Sequence[Sequence[Job]]) -> None:
        """Run several runs at once; an interrupt ends their processes."""
        with ThreadPoolExecutor(self.jobs) as pool:
            try:
                for future in as_completed([pool.submit(self.run, steps) for steps in runs]):
                    future.result()
                    self.after_run()
            except BaseException:
                self._stop()
                raise

    def run(self, steps: Sequence[Job]) -> None:
        """Run the unfinished steps of a run in order until one fails."""
        for job in steps:
            if job.result() is not None:
                continue
            if self._stopped:
                return
            reason = self._run_step(job)
            if self._stopped:
                return
            if reason:
                with self._guard:
                    self.failures.append(Failure(job, reason))
                self.progress.failed(job, reason)
                return

    def _run_step(self, job: Job) -> str:
        """Run one step to its result.

        Returns:
            The reason of a failure; empty if there is none.
        """
        starts, start = job.begin(), time.monotonic()
        try:
            command = prepare(job, self.jobs)
            with open(job.folder / 'log.txt', 'ab') as log:
                code = self._call(command, log.fileno())
            if code:
                return f'exit code {code}'
            seconds = time.monotonic() - start
            self.progress.finished(job, seconds, job.finish(seconds, starts)['measures'])
        except (VitnasError, OSError) as err:
            return str(err)
        return ''

    def _call(self, command: Sequence[str], log: int) -> int:
        child = [sys.executable, str(Path(__file__).with_name('child.py')), str(os.getpid()), *command]
        with self._guard:
            if self._stopped:
                return -1
            process = subprocess.Popen(
                child,
                cwd=ROOT,
                env=_environment(self.jobs),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(self.lock,) if fcntl is not None else (),
            )
            self._processes.add(process)
        try:
            return process.wait()
        except BaseException:
            process.kill()
            raise
        finally:
            with self._guard:
                self._processes.discard(process)

    def _stop(self) -> None:
        with self._guard:
            self._stopped = True
            for process in self._processes:
                process.kill()


def prepare(job: Job, jobs: int) -> list[str]:
    """Write the config of a step and fill in its command.

    Returns:
        The script and its arguments.

    Raises:
        StudyError: The step needs a checkpoint that is not there.
    """
    earlier = {path.name: str(path) for path in [*_folders(job.folder.parent), *_folders(_shared(job))]}
    config = job.folder / 'config.py'
    places = {**earlier, 'seed': str(job.run.seed), 'dir': str(job.folder), 'config': str(config), 'jobs': str(jobs)}
    cfg = job.step.resolve(job.run.seed)
    if cfg is not None:
        cfg.merge_from_dict(fill(dict(job.step.overrides), places))
        cfg.dump(config)
    if job.step.script != TRAIN:
        return [job.step.script, *fill(job.step.args, places)]
    command = [TRAIN, str(config), '--work-dir', str(job.folder)]
    if (job.folder / 'last_checkpoint').is_file():
        command += ['--resume']
    return command


def _shared(job: Job) -> Path:
    depth = len(job.run.folder.parts)
    return job.folder.parents[depth] / SHARED


def _folders(parent: Path) -> list[Path]:
    return sorted(path for path in parent.glob('*') if path.is_dir()) if parent.is_dir() else []


def _environment(jobs: int) -> dict[str, str]:
    """Build the environment of a step: cores divided among jobs, the repository on the path."""
    threads = os.environ.get('OMP_NUM_THREADS') or str(max(1, (os.cpu_count() or 1) // jobs))
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get('PYTHONPATH')])])
    return {**os.environ, 'OMP_NUM_THREADS': threads, 'PYTHONPATH': path, 'PYTHONUNBUFFERED': '1'}
