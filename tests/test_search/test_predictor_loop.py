"""NASViT's search by predictions: proposals, output files, errors, and a better front."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.families import FAMILIES
from vitnas_core.errors import VitnasError
from vitnas_core.search import Candidate, Predictor, PredictorSearchLoop, SearchLoop, pareto_front
from vitnas_core.spaces import Arch

from .common import build, config, history, noise, search, without_seconds
from .test_evolution import FITNESS, ours
from .test_latency import made_up_table, seconds
from .test_predictor import SPACE, dominates, smooth

SEARCH: dict[str, Any] = dict(
    type='vitnas.PredictorSearchLoop',
    num_samples=40, num_final=12, trees=20, parents=10, mutations=10, crossovers=10, rounds=6,
)  # fmt: skip
SMALL: dict[str, Any] = {**SEARCH, 'num_samples': 10, 'num_final': 6, 'trees': 5, 'rounds': 2}
score = smooth(SPACE)


def uphill(arch: Arch) -> float:
    """Better with the choices, and a little by chance."""
    return score(arch) + noise(arch) / 50


def final(loop: SearchLoop) -> list[Candidate]:
    return [candidate for candidate in loop.history if candidate.generation == 1]


def check_front(loop: SearchLoop, cost: str) -> None:
    """None of the final generation is dominated by another in (prediction, cost), and they are in order."""
    found = final(loop)
    predicted = loop.algorithm.forest.predict([candidate.arch for candidate in found])
    rows = [(float(p), candidate.cost[cost]) for p, candidate in zip(predicted, found)]
    assert rows == sorted(rows) and len(set(rows)) == len(rows)
    assert not any(dominates(a, b) for a in rows for b in rows)


@pytest.fixture
def table(tmp_path: Path) -> str:
    (tmp_path / 'latency.json').write_text(made_up_table(SPACE).to_json())
    return str(tmp_path / 'latency.json')


def test_defaults_are_the_published_ones() -> None:
    found = {field.name: field.default for field in dataclasses.fields(Predictor)}
    published = dict(num_samples=1024, parents=128, mutations=128, crossovers=128, rounds=40, mutation_prob=0.1)
    assert {name: found[name] for name in published} == published and found['cost'] == 'macs'


def test_a_real_search_and_what_it_leaves(tmp_path: Path) -> None:
    """Scores of the supernet, not of a table."""
    cfg = config(tmp_path / 'run', SEARCH, log_level='INFO')
    loop, run = search(cfg, pictures=True), tmp_path / 'run'
    figures = json.loads((run / 'predictor.json').read_text())
    assert set(figures) == {'r2', 'kendall', 'num_train', 'num_validation', 'num_predicted'}
    assert figures['num_train'] == figures['num_validation'] == 20
    assert 40 + 2 * 20 < figures['num_predicted'] <= 40 + 6 * 20
    assert figures['r2'] == loop.algorithm.validation.r2 <= 1 and -1 <= figures['kendall'] <= 1
    assert (run / 'predictor.png').read_bytes().startswith(b'\x89PNG')
    for file in ('best_arch.json', 'pareto.json', 'pareto.png', 'history.jsonl'):
        assert (run / file).exists()
    words = f'{loop.algorithm.validation}, {figures["num_predicted"]} architectures predicted'
    assert f'<td>prediction</td><td>{words}</td>' in (run / 'report.html').read_text()
    (log,) = run.glob('*/*.log')
    assert f'Search: {words}; {len(final(loop))} of them are evaluated' in log.read_text()
    assert f', prediction: {words}\n' in log.read_text()
    assert not list(run.glob('.*.tmp'))
    check_front(loop, 'macs')


@pytest.mark.parametrize('cost', ['macs', 'params', 'latency'])
@pytest.mark.parametrize('seed', [0, 1, 2])
def test_the_last_generation_is_the_predicted_front(tmp_path: Path, table: str, cost: str, seed: int) -> None:
    asked = {**SEARCH, 'cost': cost, 'latency_table': table}
    loop = search(config(tmp_path / 'run', asked, randomness=dict(seed=seed)), uphill)
    assert 2 <= len(final(loop)) <= 12
    check_front(loop, cost)
    # Nor does one that was evaluated before seem better and cheaper.
    first = loop.history[:40]
    before = list(zip(loop.algorithm.forest.predict([c.arch for c in first]).tolist(), (c.cost[cost] for c in first)))
    for candidate, value in zip(final(loop), loop.algorithm.forest.predict([c.arch for c in final(loop)]).tolist()):
        assert not any(dominates(row, (value, candidate.cost[cost])) for row in before)
    front = json.loads((tmp_path / 'run' / 'pareto.json').read_text())
    assert [row['id'] for row in front] == [c.id for c in pareto_front(loop.history, cost)]


def test_a_front_of_latency_is_drawn_as_one(tmp_path: Path, table: str) -> None:
    limits = dict(latency=(None, seconds(SPACE.largest())), macs=(None, 3e6))
    asked = {**SEARCH, 'cost': 'latency', 'latency_table': table, 'constraint': limits}
    search(config(tmp_path / 'run', asked), uphill, pictures=True)
    text = (tmp_path / 'run' / 'report.html').read_text()
    assert 'Pareto front of score and latency (' in text and '<h2>Score and MACs</h2>' in text
    assert 'table over Latency: every candidate, the Pareto front and the winner' in text


@pytest.mark.parametrize('family', ['autoformer', 's3', 'vit_res'])
def test_every_candidate_is_within_the_limits(tmp_path: Path, family: str) -> None:
    backbone = FAMILIES[family].elastic()
    low, high = (backbone.price(arch, 32, 10) for arch in (backbone.space.smallest(), backbone.space.largest()))
    limit = (0.7 * low.macs + 0.3 * high.macs, 0.4 * low.macs + 0.6 * high.macs)
    params = (None, 0.35 * low.params + 0.65 * high.params)
    asked = {**SEARCH, 'constraint': dict(macs=limit, params=params)}
    loop = search(config(tmp_path / 'run', asked, family), smooth(backbone.space))
    assert final(loop) and len({candidate.arch for candidate in loop.history}) == len(loop.history)
    for candidate in loop.history:
        assert limit[0] <= candidate.cost['macs'] <= limit[1] and candidate.cost['params'] <= params[1]


def test_a_journal_cut_anywhere_is_continued_to_the_same_history(tmp_path: Path) -> None:
    cfg, run = config(tmp_path / 'run', SMALL), tmp_path / 'run'
    whole = without_seconds(history(run, search(cfg, uphill)))
    assert [row['generation'] for row in whole].count(1) >= 3
    lines = (run / 'history.jsonl').read_bytes().splitlines(keepends=True)
    files = {name: (run / name).read_bytes() for name in ('predictor.json', 'predictor.png', 'pareto.json')}
    for count in range(len(lines)):
        (run / 'history.jsonl').write_bytes(b''.join(lines[:count]) + lines[count][:25])
        for name in files:
            (run / name).unlink()
        loop = search(cfg, uphill)
        assert len(loop.scorer.asked) == len(whole) - max(count - 1, 0)
        assert without_seconds(history(run, loop)) == whole
        assert {name: (run / name).read_bytes() for name in files} == files


def test_every_setting_makes_it_another_search(tmp_path: Path) -> None:
    search(config(tmp_path / 'run', SMALL), uphill)
    for name, value in dict(num_samples=11, num_final=5, trees=6, rounds=3, cost='params', mutation_prob=0.2).items():
        with pytest.raises(VitnasError, match=f'is the journal of another search: strategy.{name}: .* → '):
            search(config(tmp_path / 'run', {**SMALL, name: value}), uphill)


def test_seeds_differ_and_are_repeatable(tmp_path: Path) -> None:
    found = []
    for i, seed in enumerate((0, 1, 0)):
        loop = search(config(tmp_path / str(i), SMALL, randomness=dict(seed=seed)), uphill)
        found.append(without_seconds(list(loop.history)))
    assert found[0] == found[2] != found[1]


def area(candidates: list[Candidate]) -> float:
    """Under the front: the best score within a limit, over all limits of the reachable range."""
    limits = np.linspace(4.6e6, 8.2e6, 50)
    return float(np.mean([max((c.score for c in candidates if c.cost['params'] <= x), default=80.0) for x in limits]))


@pytest.mark.parametrize('seed', [0, 1, 2])
def test_the_front_is_better_than_a_random_one(seed: int) -> None:
    """250 evaluations each, on the fitness of the published evolution, in a space of 1e16."""
    algorithm, feasible = Predictor(220, 30, 'params', 20, 64, 64, 64, rounds=15), ours().space
    algorithm.setup(feasible)

    def evaluated(archs: list[Arch], generation: int, start: int) -> list[Candidate]:
        prices = [feasible.price(arch) for arch in archs]
        costs = [dict(macs=price.macs, params=price.params) for price in prices]
        return [Candidate(start + i, generation, a, c, FITNESS(a)) for i, (a, c) in enumerate(zip(archs, costs))]

    first = [p.arch for p in algorithm.ask(np.random.default_rng([seed, 0]))]
    known = evaluated(first, 0, 0)
    algorithm.tell(known)
    front = [p.arch for p in algorithm.ask(np.random.default_rng([seed, 1]))]
    assert len(first) == len(set(first)) == 220 and 10 <= len(front) <= 30 and not set(first) & set(front)
    rng, seen = np.random.default_rng([seed, 2]), set(first)
    while len(seen) < 250:
        seen.add(feasible.draw(rng, seen))
    by_chance = evaluated(sorted(seen, key=lambda arch: arch.digest()), 0, 0)
    assert area(known + evaluated(front, 1, 220)) > area(by_chance) + 0.5


def test_a_space_that_is_exhausted_ends_the_search(tmp_path: Path) -> None:
    """Everything within the limits was evaluated: there is no front left to look at."""
    backbone = FAMILIES['autoformer'].elastic()
    macs = sorted(backbone.price(arch, 32, 10).macs for arch in SPACE.iterate())
    asked = {**SEARCH, 'constraint': dict(macs=(None, macs[19]))}
    loop = search(config(tmp_path / 'run', asked), uphill)
    assert len(loop.history) == sum(value <= macs[19] for value in macs) and not final(loop)
    assert json.loads((tmp_path / 'run' / 'predictor.json').read_text())['num_predicted'] == len(loop.history)
    asked['constraint'] = dict(macs=(None, macs[0]))
    with pytest.raises(VitnasError, match='a predictor needs at least 4 candidates .* but got 1; .* widen the limits'):
        search(config(tmp_path / 'few', asked), uphill)


@pytest.mark.parametrize(
    ('change', 'words'),
    [
        (dict(num_samples=3), '`num_samples` should be a whole number of at least 4, but got 3'),
        (dict(num_final=1), '`num_final` should be a whole number of at least 2, but got 1'),
        (dict(parents=0), '`parents` should be a whole number of at least 1, but got 0'),
        (dict(rounds=2.0), '`rounds` should be a whole number of at least 1, but got 2.0'),
        (dict(mutations=-1), '`mutations` should be a whole number of at least 0, but got -1'),
        (dict(trees=0), '`trees` should be a whole number of at least 1, but got 0'),
        (dict(cost='flops'), "`cost` should be one of macs, params, latency, but got 'flops'"),
        (dict(cost='latency'), '`cost` is latency, which needs measured latencies: give latency_table'),
        (dict(mutation_prob=1.5), 'prob should be from 0 to 1, but got 1.5'),
        (dict(racing=dict(confidence=0.9)), '`racing` should be left out with vitnas.Predictor: '),
    ],
)
def test_mistakes(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    cfg = config(tmp_path / 'run', {**SEARCH, **change})
    cfg['train_dataloader']['dataset'] = dict(type='NoSuchDataset')  # refused before images are read
    with pytest.raises(VitnasError, match=words):
        build(cfg).train()


def test_it_is_a_part_of_the_registry() -> None:
    from vitnas_core.registry import LOOPS

    assert LOOPS.get('vitnas.PredictorSearchLoop') is PredictorSearchLoop
