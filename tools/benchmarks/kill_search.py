"""Kill a real search again and again: ``python tools/benchmarks/kill_search.py [--kills 30]``.

One or two processes search a small supernet on the digits. The tool kills them with SIGKILL at a random moment and
restarts them with one or two processes, until the search ends. Then it compares the search with an uninterrupted one,
and starts the next search until there were enough kills. It checks:

    lost      candidates with a written line that a reader of the files does not find, after every kill
    repeated  candidates that were evaluated again although their line was written
    history   every candidate of the finished search, except for its seconds
    winner    best_arch.json and pareto.json, byte by byte

A candidate that is being evaluated during a kill is evaluated again; ``begun`` counts these evaluations too.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import vitnas_core  # noqa: F401  (before mmpretrain: repairs its import)
from tools.benchmarks.search import make_runner, save_supernet

SEARCH = dict(type='vitnas.EvolutionSearchLoop', population=10, parents=4, generations=3, mutations=5, crossovers=5)


@dataclass
class Findings:
    """Counts over all searches."""

    kills: int = 0
    searches: int = 0
    written: int = 0
    begun: int = 0
    restarts_with_other_ranks: int = 0
    kills_in_evaluation: int = 0
    lost: int = 0
    repeated: int = 0
    other_history: int = 0
    other_winner: int = 0

    @property
    def passed(self) -> bool:
        """True if every check passed."""
        return not (self.lost or self.repeated or self.other_history or self.other_winner)


def work(folder: Path, supernet: Path, seed: int, rank: int, world: int, meeting: str) -> None:
    """Run one process of a search; log each evaluation that begins and each candidate that is written."""
    from vitnas_core.evaluation import Scorer
    from vitnas_core.search import Journal

    torch.set_num_threads(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    notes = os.open(folder / 'notes', os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    score, append = Scorer.score, Journal.append
    fresh: set[Any] = set()

    def noted_score(self: Any, job: Any) -> Any:
        os.write(notes, b'begun\n')
        fresh.add(job.arch)
        return score(self, job)

    def noted_append(self: Any, candidate: Any) -> None:
        append(self, candidate)
        if candidate.arch in fresh:  # skip those merged from another rank
            fresh.discard(candidate.arch)
            os.write(notes, f'written {candidate.id}\n'.encode())

    Scorer.score = noted_score  # type: ignore[method-assign]  # to log every call
    Journal.append = noted_append  # type: ignore[method-assign]  # likewise
    if world > 1:
        torch.distributed.init_process_group('gloo', init_method=f'file://{meeting}', rank=rank, world_size=world)
    make_runner(folder / 'run', supernet, SEARCH, seed, per_class=10, batch_size=25).train()


def start(folder: Path, supernet: Path, seed: int, world: int) -> list[Any]:
    """Start the processes of a search."""
    folder.mkdir(parents=True, exist_ok=True)
    context = multiprocessing.get_context('fork')  # avoids importing everything again
    meeting = str(folder / f'meeting{time.time_ns()}')
    running = [
        context.Process(target=work, args=(folder, supernet, seed, rank, world, meeting)) for rank in range(world)
    ]
    for process in running:
        process.start()
    return running


def finish(running: list[Any], seconds: float) -> bool:
    """Wait for processes; return whether all of them ended without an error in time."""
    end = time.monotonic() + seconds
    for process in running:
        process.join(max(0.0, end - time.monotonic()))
    for process in running:
        if process.exitcode not in (None, 0):
            raise SystemExit(f'a search ended with exit code {process.exitcode}')
    return all(process.exitcode == 0 for process in running)


def await_evaluation(folder: Path, running: list[Any]) -> None:
    """Wait until the processes evaluate one more candidate or end."""
    notes = folder / 'notes'
    size = notes.stat().st_size if notes.exists() else 0
    while any(process.is_alive() for process in running):
        if notes.exists() and notes.stat().st_size > size:
            return
        time.sleep(0.005)


def lines(folder: Path) -> list[dict[str, Any]]:
    """Read the candidates in all journals of a folder as any reader would, without incomplete lines."""
    found = {}
    for path in sorted((folder / 'run').glob('history*.jsonl')):
        content = path.read_bytes()
        for line in content[: content.rfind(b'\n') + 1].splitlines()[1:]:
            candidate = json.loads(line)
            candidate.pop('seconds')
            found[candidate['id']] = candidate
    return [found[number] for number in sorted(found)]


def _in_evaluation(folder: Path) -> bool:
    """Return whether the last note is of a candidate that has begun and is not written yet."""
    return (folder / 'notes').read_text().rstrip().endswith('begun')


def written(folder: Path) -> Counter:
    """Count how often each candidate was written."""
    notes = folder / 'notes'
    rows = notes.read_text().splitlines() if notes.exists() else []
    return Counter(int(row.split()[1]) for row in rows if row.startswith('written '))


def kill_search(folder: Path, kills: int, seed: int = 0, verbose: bool = True) -> Findings:
    """Kill searches until there were enough kills, then let the last one end.

    Args:
        folder: Folder for the searches.
        kills: Number of kills, each of one or two processes.
        seed: Seed of the kill times and the searches. Defaults to 0.
        verbose: Whether to print a line per search. Defaults to True.
    """
    draw, found = random.Random(seed), Findings()
    supernet = save_supernet(folder / 'supernet.pth')
    while found.kills < kills:
        calm, shot = folder / f'calm{found.searches}', folder / f'killed{found.searches}'
        begin = time.monotonic()
        finish(start(calm, supernet, seed + found.searches, 1), 600)
        whole = time.monotonic() - begin
        before, last = found.kills, 0
        while True:
            world = draw.choice((1, 2))
            found.restarts_with_other_ranks += last not in (0, world)
            last = world
            running = start(shot, supernet, seed + found.searches, world)
            if draw.random() < 0.8:  # most kills hit an evaluation, some the start of the search
                await_evaluation(shot, running)
            if finish(running, draw.uniform(0, 0.3) * whole if found.kills < kills else 600):
                break
            for process in draw.sample(running, len(running)):
                os.kill(process.pid, signal.SIGKILL)
                time.sleep(draw.uniform(0, 0.05) * (world - 1))
            for process in running:
                process.join()
            found.kills += 1
            there = {candidate['id'] for candidate in lines(shot)}
            found.lost += len(set(written(shot)) - there)
            found.kills_in_evaluation += (shot / 'notes').exists() and _in_evaluation(shot)
        judge(found, calm, shot)
        if verbose:
            print(f'  search {found.searches}: {found.kills - before} kills, {len(lines(shot))} candidates', flush=True)
    return found


def judge(found: Findings, calm: Path, shot: Path) -> None:
    """Compare a finished search with the uninterrupted one."""
    counts = written(shot)
    found.searches += 1
    found.written += len(counts)
    found.begun += (shot / 'notes').read_text().count('begun')
    found.lost += len(set(counts) - {candidate['id'] for candidate in lines(shot)})
    found.repeated += sum(count > 1 for count in counts.values())
    found.other_history += lines(calm) != lines(shot)
    results = ('best_arch.json', 'pareto.json')
    found.other_winner += any((calm / 'run' / f).read_bytes() != (shot / 'run' / f).read_bytes() for f in results)


def main(args: list[str] | None = None) -> None:
    """Kill, check, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--kills', type=int, default=30, help='number of kills; defaults to 30')
    parser.add_argument('--seed', type=int, default=0, help='seed of the kill times and searches; defaults to 0')
    options = parser.parse_args(args)
    with tempfile.TemporaryDirectory() as folder:
        found = kill_search(Path(folder), options.kills, options.seed)
    for name, value in vars(found).items():
        print(f'{name.replace("_", " "):28} {value}')
    print('passed' if found.passed else 'FAILED')
    raise SystemExit(not found.passed)


if __name__ == '__main__':
    main()
