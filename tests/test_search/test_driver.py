"""The contract of search algorithms: the same proposals with any workers, in any order, after any kill."""

from __future__ import annotations

import inspect
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.families import FAMILIES
from vitnas_core.costs import Constraint
from vitnas_core.errors import VitnasError
from vitnas_core.evaluation import Job, Result
from vitnas_core.registry import ALGORITHMS, WORKERS
from vitnas_core.search import Journal, Proposal, SearchAlgorithm, read_candidates
from vitnas_core.search.algorithms import Policy
from vitnas_core.search.driver import search
from vitnas_core.search.feasible import FeasibleSpace
from vitnas_core.workers import Failure, Workers

from .common import SETTINGS, config, noise, without_seconds
from .common import search as run_search

# A whole search algorithm.


@ALGORITHMS.register_module()
@dataclass
class HillClimbing(SearchAlgorithm):
    """Mutate the best architecture so far."""

    neighbours: int = 6
    steps: int = 5
    extendable = ('steps',)

    @property
    def max_rounds(self) -> int:
        return self.steps

    @property
    def max_candidates(self) -> int:
        return self.steps * self.neighbours

    def ask(self, rng: np.random.Generator) -> list[Proposal]:
        if not self.history:
            return [Proposal(arch) for arch in self.space.draw_several(self.neighbours, rng)]
        best = max(self.history, key=lambda candidate: candidate.score)
        tries = (self.space.space.mutate(best.arch, 0.3, rng) for _ in range(self.neighbours))
        return [Proposal(arch, (best.id,)) for arch in tries]

    def floor(self) -> float | None:
        return max((candidate.score for candidate in self.history), default=None)


def test_an_algorithm_is_short() -> None:
    assert len(inspect.getsource(HillClimbing).splitlines()) <= 40


def test_what_an_algorithm_forgets_is_named() -> None:
    class Bare(HillClimbing):
        pass

    class Plain(SearchAlgorithm):
        ask = max_rounds = max_candidates = HillClimbing.ask

    assert [field.name for field in Bare.fields()] == ['neighbours', 'steps']
    with pytest.raises(VitnasError, match='Plain should be a dataclass .* add @dataclass'):
        Plain.fields()


SMALL: dict[str, dict[str, Any]] = {
    'Evolution': dict(population=8, parents=3, generations=4, mutations=4, crossovers=4),
    'Random': dict(num_candidates=60),
    'Halving': dict(num_candidates=27),
    'NSGA2': dict(population=8, parents=4, generations=4),
    'Predictor': dict(num_samples=12, num_final=6, trees=5, parents=4, mutations=6, crossovers=6, rounds=2),
    'HillClimbing': {},
}
each = pytest.mark.parametrize('name', SMALL)


def build(name: str) -> SearchAlgorithm:
    backbone = FAMILIES['autoformer'].elastic()
    algorithm = ALGORITHMS.build(dict(type=f'vitnas.{name}', **SMALL[name]))
    macs = sorted(backbone.price(arch, **SETTINGS).macs for arch in backbone.space.iterate())
    limits = Constraint(dict(macs=(macs[len(macs) // 10], None)))
    algorithm.setup(FeasibleSpace(backbone.space, lambda arch: backbone.price(arch, **SETTINGS), limits))
    return algorithm


def scored(job: Job) -> Result:
    return Result(noise(job.arch) * job.fraction)


def run(name: str, folder: Path, score: Callable[[Job], Result] = scored, workers: Workers | None = None) -> list[dict]:
    """A search with its journal; its history as plain data."""
    algorithm, workers = build(name), workers or WORKERS.build(dict(type='serial'))
    workers.start(lambda: score)
    journal = Journal(folder, {'strategy': {'type': algorithm.name(), **algorithm.settings()}})
    found = [one for part in search(algorithm, workers, journal, algorithm.space.price, 3) for one in part]
    workers.close()
    assert found == algorithm.history and found == sorted(read_candidates(journal.path), key=lambda c: c.id)
    return without_seconds(found)


class Threads(Workers):
    """Several threads, which finish in any order."""

    def start(self, make: Callable[..., Callable[[Any], Any]], shared: Sequence[Any] = ()) -> None:
        self.pool, self.run, self.order = ThreadPoolExecutor(7), make(*shared), []

    def map_unordered(self, items: Iterable[Any]) -> Iterator[tuple[int, Any | Failure]]:
        def late(item: Any) -> Any:
            time.sleep(threading.get_ident() % 7 / 2000)
            return self.run(item)

        futures = {self.pool.submit(late, item): number for number, item in enumerate(items)}
        for future in as_completed(futures):
            self.order.append(futures[future])
            yield futures[future], future.result()

    def close(self) -> None:
        self.pool.shutdown()


class Backwards(Threads):
    """The last item first."""

    def map_unordered(self, items: Iterable[Any]) -> Iterator[tuple[int, Any | Failure]]:
        return ((number, self.run(item)) for number, item in reversed(list(enumerate(items))))


@each
def test_rounds_keep_the_contract(name: str, tmp_path: Path) -> None:
    found = run(name, tmp_path)
    algorithm = build(name)
    assert [one['id'] for one in found] == list(range(len(found))) and len(found) <= algorithm.max_candidates
    assert len({(json.dumps(one['arch']), one['share']) for one in found}) == len(found)
    assert max(one['generation'] for one in found) < algorithm.max_rounds
    assert all(found[parent]['generation'] < one['generation'] for one in found for parent in one['parents'])
    assert {field.name for field in fields(algorithm)} - set(algorithm.extendable) <= set(algorithm.settings())
    json.dumps(algorithm.settings())


@each
@pytest.mark.parametrize('kind', [Threads, Backwards])
def test_who_scores_and_in_which_order_does_not_matter(name: str, kind: type[Workers], tmp_path: Path) -> None:
    assert run(name, tmp_path / 'other', workers=kind()) == run(name, tmp_path / 'serial')


@each
def test_a_search_that_is_cut_anywhere_is_replayed(name: str, tmp_path: Path) -> None:
    whole, asked = run(name, tmp_path), []
    path = tmp_path / 'history.jsonl'
    lines = path.read_bytes().splitlines(keepends=True)
    for count in {1, 2, len(lines) // 2, len(lines) - 1}:
        path.write_bytes(b''.join(lines[:count]))
        asked.clear()
        assert run(name, tmp_path, lambda job: (asked.append(job), scored(job))[1]) == whole
        assert len(asked) == len(whole) - (count - 1)


@each
def test_a_search_that_is_killed_in_a_round_is_replayed(name: str, tmp_path: Path) -> None:
    """A real SIGKILL, while some candidates of a round are written and others are not."""
    context, whole = multiprocessing.get_context('fork'), run(name, tmp_path / 'calm')
    for last in (4, len(whole) - 3):
        folder = tmp_path / f'killed{last}'

        def die(job: Job, left: list[int]) -> Result:
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)
            left.pop()
            return scored(job)

        process = context.Process(target=lambda: run(name, folder, lambda job, left=[0] * last: die(job, left)))  # noqa: B023
        process.start()
        process.join(60)
        assert process.exitcode == -signal.SIGKILL
        assert len(read_candidates(folder / 'history.jsonl')) == last
        assert run(name, folder) == whole


def test_a_failure_ends_the_search_with_its_reason(tmp_path: Path) -> None:
    class Broken(Threads):
        def map_unordered(self, items: Iterable[Any]) -> Iterator[tuple[int, Any | Failure]]:
            yield 2, Failure('the worker died', deaths=3)

    with pytest.raises(VitnasError, match='candidate 2 cannot be scored: the worker died: {"family"'):
        run('Random', tmp_path, workers=Broken())


def test_a_new_algorithm_is_short_and_runs_from_a_config(tmp_path: Path) -> None:
    assert len(inspect.getsource(HillClimbing).splitlines()) <= 30
    asked = dict(type='vitnas.SearchLoop', algorithm=dict(type='vitnas.HillClimbing', steps=3))
    loop = run_search(config(tmp_path / 'run', {**asked, 'racing': dict(confidence=0.99)}))
    assert loop.iter > 6 and loop.algorithm.history == list(loop.history)
    header = json.loads((tmp_path / 'run/history.jsonl').read_text().splitlines()[0])
    assert header['strategy'] == {'type': 'HillClimbing', 'neighbours': 6}
    for wrong, words in (
        (dict(step=3), 'vitnas.HillClimbing has no setting step; did you mean steps'),
        (dict(type='vitnas.Policy'), 'vitnas.Policy should have `sampler`'),
    ):
        with pytest.raises(VitnasError, match=words):
            run_search(config(tmp_path / 'other', {**asked, 'algorithm': {**asked['algorithm'], **wrong}}))
        asked['algorithm'] = dict(type='vitnas.HillClimbing')
    with pytest.raises(VitnasError, match='`algorithm` should be the config of a search algorithm'):
        run_search(config(tmp_path / 'other', dict(type='vitnas.SearchLoop', algorithm='evolution')))


@pytest.mark.parametrize('first', ['flat', 'nested'])
def test_both_spellings_are_one_search(tmp_path: Path, first: str) -> None:
    """The journal of one goes on under the other."""
    settings = dict(population=6, parents=2, mutations=3, crossovers=3)
    flat = dict(type='vitnas.EvolutionSearchLoop', **settings)
    nested = dict(type='vitnas.SearchLoop', algorithm=dict(type='vitnas.Evolution', **settings))
    one, two = (flat, nested) if first == 'flat' else (nested, flat)

    def lasting(search: dict[str, Any], generations: int) -> dict[str, Any]:
        inner = search.get('algorithm')
        return (
            {**search, 'algorithm': {**inner, 'generations': generations}}
            if inner
            else {**search, 'generations': generations}
        )

    begun = run_search(config(tmp_path / 'run', lasting(one, 2)), noise)
    ended = run_search(config(tmp_path / 'run', lasting(two, 3)), noise)
    assert ended.history[: len(begun.history)] == begun.history and len(ended.scorer.asked) == 6


def test_algorithms_know_no_mmengine_journal_or_ranks() -> None:
    folder = Path(sys.modules[SearchAlgorithm.__module__].__file__).parent
    for path in folder.glob('*.py'):
        text = path.read_text()
        assert not any(word in text for word in ('mmengine.', 'from mmengine', 'journal import', 'open(')), path
    driver = (folder.parent / 'driver.py').read_text()
    assert 'mmengine' not in driver.partition('"""\n')[2].replace('"""', '')


def test_evaluation_needs_neither_training_nor_search() -> None:
    code = (
        'import sys, vitnas_core.evaluation; '
        'sys.exit(any(name.startswith(("vitnas_core.training", "vitnas_core.search")) for name in sys.modules))'
    )
    assert subprocess.run([sys.executable, '-c', code], cwd=Path(__file__).parents[2]).returncode == 0


def test_policy_is_bound_to_its_sampler() -> None:
    sampler = dict(type='vitnas.FocusSampler', input_size=32, num_classes=10, step=3e5, width=16)
    assert Policy(sampler, 2e6).priced_for() == dict(input_size=32, num_classes=10)
