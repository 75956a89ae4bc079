"""NSGA-II by pymoo: the same survivors as pymoo's own algorithm, known fronts, and errors."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vitnas_core.search
from tests.families import FAMILIES, SMALL_SPACES
from vitnas_core.costs import Constraint, Cost
from vitnas_core.errors import VitnasError
from vitnas_core.search import NSGA2, Candidate, NSGA2SearchLoop, Proposal, pareto_front, ranked
from vitnas_core.search.feasible import FeasibleSpace
from vitnas_core.spaces import Arch, SearchSpace

from .common import SETTINGS, build, config, history, noise, search, without_seconds
from .test_latency import made_up_table, seconds
from .test_predictor import SPACE, dominates, smooth

SEARCH: dict[str, Any] = dict(type='vitnas.NSGA2SearchLoop', population=12, parents=6, generations=5)
SMALL: dict[str, Any] = {**SEARCH, 'population': 5, 'parents': 3, 'generations': 4}
Score = Callable[[Arch], float]


def uphill(space: SearchSpace) -> Score:
    """Better with the choices, and a little by chance."""
    score = smooth(space)
    return lambda arch: score(arch) + noise(arch) / 50


@lru_cache
def priced(family: str) -> FeasibleSpace:
    """A family's small space without limits; prices are remembered."""
    backbone = FAMILIES[family].elastic()
    return FeasibleSpace(backbone.space, lru_cache(None)(lambda arch: backbone.price(arch, **SETTINGS)), Constraint())


def bare(feasible: FeasibleSpace, **changes: Any) -> NSGA2:
    """The algorithm with its defaults, set up for a space."""
    algorithm = NSGA2(**changes)
    algorithm.setup(feasible)
    return algorithm


def evaluated(space: FeasibleSpace, proposals: list[Proposal], generation: int, start: int, score: Score) -> list:
    costs = [space.price(proposal.arch) for proposal in proposals]
    return [
        Candidate(start + i, generation, p.arch, dict(macs=c.macs, params=c.params), score(p.arch), p.parents)
        for i, (p, c) in enumerate(zip(proposals, costs))
    ]


def run(algorithm: NSGA2, score: Score, generations: int, seed: int = 0) -> list[Candidate]:
    """What the driver does, on a table."""
    for generation in range(generations):
        proposals = algorithm.ask(np.random.default_rng([seed, generation]))
        if not proposals:
            break
        algorithm.tell(evaluated(algorithm.space, proposals, generation, len(algorithm.history), score))
    return algorithm.history


def replayed(feasible: FeasibleSpace, found: list[Candidate], generations: int, **changes: Any) -> NSGA2:
    """An algorithm that was told the first generations."""
    algorithm = bare(feasible, **changes)
    for generation in range(generations):
        algorithm.tell(born(found, generation))
    return algorithm


def born(found: list[Candidate], generation: int) -> list[Candidate]:
    return [candidate for candidate in found if candidate.generation == generation]


@pytest.fixture
def table(tmp_path: Path) -> str:
    (tmp_path / 'latency.json').write_text(made_up_table(SPACE).to_json())
    return str(tmp_path / 'latency.json')


# what it proposes


def test_defaults_are_the_published_ones() -> None:
    """ViTAS, App. A.3: 50 paths in each of 40 generations, 2,000 in all, and 20 parents; pymoo's chances."""
    algorithm = bare(priced('vit_res'))
    assert (algorithm.population, algorithm.generations, algorithm.parents) == (50, 40, 20)
    assert algorithm.max_candidates == 2000 and algorithm.cost == algorithm.front_cost == 'macs'
    dimensions = algorithm.space.space.dimensions
    choices = sum(len(dim.options) > 1 for dim in dimensions)
    assert 0 < choices < len(dimensions)
    assert algorithm.crossover_prob == 0.9 and algorithm.settings()['mutation_prob'] == 1 / choices


@pytest.mark.parametrize('parents', [8, None])
@pytest.mark.parametrize('cost', ['macs', 'params', None])
def test_survivors_are_those_of_pymoos_own_nsga2(cost: str | None, parents: int | None) -> None:
    """pymoo's algorithm is told what every generation scored, and how to break the ties of the last place."""
    from pymoo.algorithms.moo.nsga2 import NSGA2
    from pymoo.core.population import Population
    from pymoo.core.problem import Problem

    asked = dict(population=20, parents=parents, cost=cost)
    found = run(bare(priced('s3'), **asked), noise, 9)
    theirs = NSGA2(pop_size=20)
    theirs.setup(Problem(n_var=1, n_obj=1 if cost is None else 2), termination=('n_gen', 100), seed=0)
    for generation in range(9):
        children = born(found, generation)
        rows = [[-c.score] if cost is None else [-c.score, c.cost[cost]] for c in children]
        theirs.random_state = np.random.default_rng(generation + 1)
        theirs.tell(infills=Population.new(F=np.array(rows, dtype=float), number=[c.id for c in children]))
        ours = replayed(priced('s3'), found, generation + 1, **asked).survivors()
        assert [c.id for c in ours] == theirs.pop.get('number').tolist()
    assert {c.generation for c in ours} - {0, 8} and len(ours) == 20
    if cost is None:  # then it is the best of all
        assert {c.id for c in ours} == {c.id for c in ranked(found)[:20]}


def test_parents_are_the_best_survivors() -> None:
    feasible, asked = priced('nasvit'), dict(population=30, parents=7)
    found = run(bare(feasible, **asked), uphill(feasible.space), 6)
    for generation in range(1, 6):
        alive = replayed(feasible, found, generation, **asked).survivors()
        used = {parent for child in born(found, generation) for parent in child.parents}
        assert 2 < len(used) <= 7 and used <= {c.id for c in alive}
        rows = {c.id: (c.score, c.cost['macs']) for c in alive}
        others = [row for number, row in rows.items() if number not in used]
        first = {c.id for c in pareto_front(alive)}
        if len(first) >= 7:  # only the front breeds, both ends of it among it
            assert used <= first
        assert not any(dominates(other, rows[number]) for number in used for other in others)
    assert {len(child.parents) for child in found if child.generation} == {1, 2}


@pytest.mark.parametrize(('prob', 'numbers'), [(0.0, {1}), (0.5, {1, 2}), (1.0, {2})])
def test_the_chance_of_two_parents(prob: float, numbers: set[int]) -> None:
    found = run(bare(priced('nasvit'), crossover_prob=prob), noise, 4)
    assert {len(child.parents) for child in found if child.generation} == numbers
    assert not any(child.parents for child in born(found, 0))


def test_one_parent_is_not_crossed_with_itself() -> None:
    loop = bare(priced('nasvit'), population=10, parents=1, crossover_prob=1.0, mutation_prob=0.5)
    found = run(loop, noise, 4)
    assert {len(child.parents) for child in found if child.generation} == {1}


def test_children_are_of_their_parents() -> None:
    """Without mutation every dimension is one of the parents'."""
    loop = bare(priced('nasvit'), mutation_prob=0.0, crossover_prob=1.0)
    found, codes = run(loop, noise, 3), {}
    for candidate in found:
        codes[candidate.id] = loop.space.space.encode(candidate.arch)
        if candidate.parents:
            one, two = (codes[parent] for parent in candidate.parents)
            assert ((codes[candidate.id] == one) | (codes[candidate.id] == two)).all()
    assert len(born(found, 2)) == 50


@pytest.mark.parametrize('seed', [0, 1, 2])
@pytest.mark.parametrize('family', ['vit_res', 'nasvit'])
def test_a_front_that_is_known_is_found(family: str, seed: int) -> None:
    """Against all architectures; a random search of the same length misses half of it or more."""
    feasible = priced(family)
    loop, score = bare(feasible), uphill(feasible.space)
    archs = list(feasible.space.iterate())
    exact = pareto_front(evaluated(feasible, [Proposal(arch) for arch in archs], 0, 0, score))
    wanted = {(c.score, c.cost['macs']) for c in exact}
    assert len(wanted) > 15 and len(archs) > 2 * 16 * 50
    found = run(loop, score, 16, seed)
    chance = [Proposal(arch) for arch in feasible.draw_several(16 * 50, np.random.default_rng(seed))]
    by_chance = evaluated(feasible, chance, 0, 0, score)
    shares = [len(wanted & {(c.score, c.cost['macs']) for c in of}) / len(wanted) for of in (found, by_chance)]
    assert shares[0] >= 0.9 and shares[1] < 0.75 and shares[0] > shares[1] + 0.25, shares


def test_it_depends_on_nothing_but_its_arguments() -> None:
    """Neither on what was proposed before nor on the global generators, which stay as they are."""
    feasible = priced('s3')
    loop = bare(feasible, population=20)
    found = run(loop, lambda arch: round(noise(arch), -1), 5)  # many ties
    before = np.random.get_state(), random.getstate()
    first = loop.ask(np.random.default_rng(7))
    after = np.random.get_state(), random.getstate()
    assert before[1] == after[1] and all(np.array_equal(a, b) for a, b in zip(before[0], after[0]))
    np.random.seed(3)
    random.seed(3)
    again = replayed(feasible, found, 5, population=20)
    assert again.ask(np.random.default_rng(7)) == first
    assert loop.ask(np.random.default_rng(8)) != first
    assert loop.survivors() == again.survivors()


def test_ties_leave_the_parents_among_the_survivors() -> None:
    asked = dict(population=20, parents=6)
    found = run(bare(priced('s3'), **asked), lambda arch: 1.0 + (noise(arch) > 50), 6)
    for generation in range(1, 6):
        alive = {c.id for c in replayed(priced('s3'), found, generation, **asked).survivors()}
        assert len(alive) == 20
        assert {parent for child in born(found, generation) for parent in child.parents} <= alive


def test_candidates_without_a_score_are_no_parents() -> None:
    feasible, asked = priced('s3'), dict(population=10, parents=5)
    first = evaluated(feasible, bare(feasible, **asked).ask(np.random.default_rng(0)), 0, 0, noise)
    lost = [Candidate(c.id, 0, c.arch, c.cost, -np.inf, complete=False) for c in first]
    algorithm = replayed(feasible, lost, 1, **asked)
    again = algorithm.ask(np.random.default_rng(1))
    assert len(again) == 10 and not any(p.parents for p in again) and algorithm.survivors() == []
    some = replayed(feasible, [*lost[:8], *first[8:]], 1, **asked).ask(np.random.default_rng(1))
    assert len(some) == 10 and {parent for p in some for parent in p.parents} == {8, 9}


@pytest.mark.parametrize('name', SMALL_SPACES)
def test_a_small_space_is_exhausted_and_every_network_is_evaluated_once(name: str) -> None:
    """Absent blocks have many encodings, and one spelling."""
    space = SMALL_SPACES[name]

    def price(arch: Arch) -> Cost:
        return Cost(params=1 + len(arch.to_json()), macs=1 + int(noise(arch)))

    for limits in (None, dict(macs=(None, 60))):
        feasible = FeasibleSpace(space, price, Constraint(limits))
        inside = [arch for arch in space.iterate() if arch in feasible]
        found = run(bare(feasible, population=7, parents=4), noise, 10**4)
        assert len(found) == len(inside) and {c.arch for c in found} == set(inside)


# as a search


def test_a_real_search_and_what_it_leaves(tmp_path: Path) -> None:
    """Scores of the supernet, not of a table."""
    cfg = config(tmp_path / 'run', SEARCH, log_level='INFO')
    loop, folder = search(cfg, pictures=True), tmp_path / 'run'
    assert len(loop.history) == 60 == len({c.arch for c in loop.history})
    for file in ('best_arch.json', 'pareto.json', 'pareto.png', 'history.jsonl'):
        assert (folder / file).exists()
    report = (folder / 'report.html').read_text()
    assert '<td>search</td><td>NSGA2SearchLoop</td>' in report and '<td>cost</td><td>macs</td>' in report
    assert Arch.from_json((folder / 'best_arch.json').read_text()) == ranked(loop.history)[0].arch


@pytest.mark.parametrize('cost', ['macs', 'params', 'latency', None])
def test_the_front_is_of_the_cost(tmp_path: Path, table: str, cost: str | None) -> None:
    asked = {**SEARCH, 'cost': cost, 'latency_table': table}
    loop = search(config(tmp_path / 'run', asked), uphill(SPACE))
    front = json.loads((tmp_path / 'run' / 'pareto.json').read_text())
    assert [row['id'] for row in front] == [c.id for c in pareto_front(loop.history, cost or 'macs')]
    assert all(c.cost['latency'] == pytest.approx(seconds(c.arch)) for c in loop.history)
    alive = loop.algorithm.survivors()
    if cost is not None and len(front) <= 12:
        assert {row['id'] for row in front} <= {c.id for c in alive}


def test_every_candidate_is_within_the_limits(tmp_path: Path) -> None:
    backbone = FAMILIES['vit_res'].elastic()
    low, high = (backbone.price(arch, **SETTINGS) for arch in (backbone.space.smallest(), backbone.space.largest()))
    limit = (0.6 * low.macs + 0.4 * high.macs, 0.4 * low.macs + 0.6 * high.macs)
    params = (None, 0.35 * low.params + 0.65 * high.params)
    asked = {**SEARCH, 'constraint': dict(macs=limit, params=params)}
    loop = search(config(tmp_path / 'run', asked, 'vit_res'), uphill(backbone.space))
    assert len(loop.history) == 60 == len({candidate.arch for candidate in loop.history})
    for candidate in loop.history:
        assert limit[0] <= candidate.cost['macs'] <= limit[1] and candidate.cost['params'] <= params[1]
    assert sum(bool(candidate.parents) for candidate in loop.history) > 40


def test_a_journal_cut_anywhere_is_continued_to_the_same_history(tmp_path: Path) -> None:
    """Scores with many ties, which are broken alike."""

    def score(arch: Arch) -> float:
        return round(noise(arch), -1)

    cfg, folder = config(tmp_path / 'run', SMALL), tmp_path / 'run'
    whole = without_seconds(history(folder, search(cfg, score)))
    assert len(whole) == 20
    lines = (folder / 'history.jsonl').read_bytes().splitlines(keepends=True)
    front = (folder / 'pareto.json').read_bytes()
    for count in range(len(lines)):
        (folder / 'history.jsonl').write_bytes(b''.join(lines[:count]) + lines[count][:25])
        loop = search(cfg, score)
        assert len(loop.scorer.asked) == len(whole) - max(count - 1, 0)
        assert without_seconds(history(folder, loop)) == whole
        assert (folder / 'pareto.json').read_bytes() == front


def test_seeds_differ_and_are_repeatable(tmp_path: Path) -> None:
    found = []
    for i, seed in enumerate((0, 1, 0)):
        loop = search(config(tmp_path / str(i), SMALL, randomness=dict(seed=seed)), noise)
        found.append(without_seconds(list(loop.history)))
    assert found[0] == found[2] != found[1]


def test_every_setting_but_the_generations_makes_it_another_search(tmp_path: Path) -> None:
    search(config(tmp_path / 'run', SMALL), noise)
    changes = dict(population=6, parents=None, cost='params', crossover_prob=0.5, mutation_prob=dict(block=0.2))
    for name, value in changes.items():
        with pytest.raises(VitnasError, match=f'is the journal of another search: strategy.{name}: .* → '):
            search(config(tmp_path / 'run', {**SMALL, name: value}), noise)
    loop = search(config(tmp_path / 'run', {**SMALL, 'generations': 5}), noise)
    assert len(loop.scorer.asked) == 5 and len(loop.history) == 25


# what it refuses


@pytest.mark.parametrize(
    ('change', 'words'),
    [
        (dict(population=0), '`population` should be a whole number of at least 1, but got 0'),
        (dict(population=50.0), '`population` should be a whole number of at least 1, but got 50.0'),
        (dict(parents=0), '`parents` should be a whole number of at least 1, but got 0'),
        (dict(generations=0), '`generations` should be a whole number of at least 1, but got 0'),
        (dict(cost='throughput'), "`cost` should be one of macs, params, latency, but got 'throughput'"),
        (dict(cost='latency'), '`cost` is latency, which needs measured latencies: give latency_table'),
        (dict(crossover_prob=1.1), '`crossover_prob` should be from 0 to 1, but got 1.1'),
        (dict(crossover_prob=None), '`crossover_prob` should be from 0 to 1, but got None'),
        (dict(mutation_prob=1.5), 'prob should be from 0 to 1, but got 1.5'),
        (dict(mutation_prob=dict(depths=0.1)), r"have the keys global, stage, depth, block, but got \['depths'\]"),
        (dict(racing=dict(confidence=0.9)), '`racing` should be left out with vitnas.NSGA2: '),
    ],
)
def test_mistakes(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    cfg = config(tmp_path / 'run', {**SEARCH, **change})
    cfg['train_dataloader']['dataset'] = dict(type='NoSuchDataset')  # refused before images are read
    with pytest.raises(VitnasError, match=words):
        build(cfg).train()


@pytest.mark.parametrize('old', [False, True])
def test_without_pymoo_one_sentence_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: bool) -> None:
    monkeypatch.delitem(sys.modules, 'vitnas_core.search.crowding', raising=False)
    monkeypatch.delattr(vitnas_core.search, 'crowding', raising=False)
    if old:  # a version that would draw from the global state
        monkeypatch.delattr('pymoo.util.default_random_state')
    else:
        monkeypatch.setitem(sys.modules, 'pymoo.algorithms.moo.nsga2', None)
    cfg = config(tmp_path / 'run', SEARCH)
    with pytest.raises(VitnasError, match='vitnas.NSGA2 needs pymoo 0.6.1.6 or later: pip install "pymoo>='):
        build(cfg).train()


def test_it_is_a_part_of_the_registry_and_pymoo_of_no_other_search() -> None:
    from vitnas_core.registry import LOOPS

    assert LOOPS.get('vitnas.NSGA2SearchLoop') is NSGA2SearchLoop
    code = 'import sys, vitnas_core.search; sys.exit("pymoo" in sys.modules)'
    assert subprocess.run([sys.executable, '-c', code], cwd=Path(__file__).parents[2]).returncode == 0
