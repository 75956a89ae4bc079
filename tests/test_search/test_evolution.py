"""Evolution against the published loop, on the same fitness."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vitnas_core import zoo
from vitnas_core.backbones import AutoFormer
from vitnas_core.costs import Constraint
from vitnas_core.search import Candidate, Evolution, Proposal, ranked
from vitnas_core.search.feasible import FeasibleSpace
from vitnas_core.spaces import Arch

REFERENCE = json.loads((Path(__file__).parents[1] / 'data' / 'reference' / 'autoformer' / 'evolution.json').read_text())


def fitness(arch: Arch) -> float:
    """As REFERENCE['fitness'] says."""
    blocks = arch.stages[0].blocks
    ratio = np.mean([abs(block['mlp_ratio'] - (4.0 if i % 2 else 3.5)) for i, block in enumerate(blocks)])
    heads = np.mean([abs(block['num_heads'] - (3 if i % 3 else 4)) for i, block in enumerate(blocks)])
    return 100 - 10 * ratio - 10 * heads - abs(len(blocks) - 13) - abs(arch.stages[0]['embed_dim'] - 216) / 24


generator = np.random.default_rng
PROPOSED = ['e42ea4aad903ed00', '5fbc2d14d0b42560', 'bd329be6c084f600']


def published(**changes: Any) -> Evolution:
    """The algorithm with the published numbers, set up for the published limits."""
    space, limits = zoo.load_space('autoformer-tiny'), REFERENCE['limits_used']
    price = partial(AutoFormer.cost, input_size=224, num_classes=1000)
    window = (limits['min_param_limits'] * 1e6, limits['param_limits'] * 1e6)
    defaults = REFERENCE['defaults']
    numbers = dict(
        population=defaults['population_num'],
        parents=defaults['select_num'],
        mutations=defaults['mutation_num'],
        crossovers=defaults['crossover_num'],
        mutation_prob=dict(depth=defaults['s_prob'], stage=defaults['s_prob'], block=defaults['m_prob']),
    )
    algorithm = Evolution(**{**numbers, **changes})
    algorithm.setup(FeasibleSpace(space, price, Constraint(dict(params=window))))
    return algorithm


def told(algorithm: Evolution, proposals: list[Proposal]) -> list[Candidate]:
    """Tell an algorithm how its round scored."""
    first = len(algorithm.history)
    candidates = [
        Candidate(number, algorithm.round, p.arch, {'macs': 0}, fitness(p.arch))
        for number, p in enumerate(proposals, first)
    ]
    algorithm.tell(candidates)
    return candidates


def test_defaults_are_the_published_ones() -> None:
    found = {field.name: field.default for field in dataclasses.fields(Evolution)}
    names = dict(population='population_num', parents='select_num', generations='max_epochs')
    names.update(mutations='mutation_num', crossovers='crossover_num')
    published_ = {ours: REFERENCE['defaults'][theirs] for ours, theirs in names.items()}
    assert {ours: found[ours] for ours in names} == published_


@pytest.mark.parametrize('seed', [0, 1, 2])
def test_the_optimum_is_reached_about_as_soon_as_published(seed: int) -> None:
    algorithm = published()
    slowest = max(run['best_by_generation'].index(100.0) for run in REFERENCE['runs'])
    best = []
    for generation in range(slowest + 4):
        proposals = algorithm.ask(np.random.default_rng([seed, generation]))
        assert len(proposals) == 50 and all(p.arch in algorithm.space for p in proposals)
        if generation:
            assert sum(bool(p.parents) for p in proposals) >= 25  # mutations and crossovers, not chance
        told(algorithm, proposals)
        best.append(ranked(algorithm.history)[0].score)
        if best[-1] == 100.0:
            break
    assert best == sorted(best) and best[-1] == 100.0, best
    assert len({c.arch for c in algorithm.history}) == len(algorithm.history)


@pytest.mark.parametrize('seed', [0, 1, 2])
def test_proposals_are_those_of_the_journals_that_there_are(seed: int) -> None:
    """Digests of what the first release proposed: a change would end every search that is under way."""
    algorithm, found = published(), hashlib.sha256()
    for generation in range(3):
        proposals = algorithm.ask(np.random.default_rng([seed, generation]))
        for proposal in proposals:
            found.update(f'{proposal.arch.digest()} {proposal.parents};'.encode())
        told(algorithm, proposals)
    assert found.hexdigest()[:16] == PROPOSED[seed]
    stated = {name for name, value in algorithm.settings().items() if value is not None}  # null is as good as missing
    assert stated == {'population', 'parents', 'mutations', 'crossovers', 'mutation_prob'}


def test_a_predictor_gets_more_of_the_same_number_of_candidates() -> None:
    """From the second generation on, on the mean of a few seeds; the same first generation."""
    best = np.zeros((2, 4))
    for seed in range(4):
        for row, predictor in enumerate((None, dict(trees=30))):
            algorithm = published(predictor=predictor)
            for generation in range(4):
                proposals = algorithm.ask(np.random.default_rng([seed, generation]))
                assert len(proposals) == 50 == len({p.arch for p in proposals} - {c.arch for c in algorithm.history})
                assert all(p.arch in algorithm.space for p in proposals)
                told(algorithm, proposals)
                best[row, generation] += ranked(algorithm.history)[0].score / 4
    assert best[0, 0] == best[1, 0] and (best[1, 1:] > best[0, 1:] + 0.3).all(), best
    assert algorithm.remarks() == {'prediction': str(algorithm.validation)}
    assert algorithm.validation.num_validation == 75
    assert algorithm.settings()['predictor'] == {'trees': 30, 'oversample': 4}


def test_a_predictor_waits_for_enough_candidates() -> None:
    algorithm = published(predictor={}, population=3)
    algorithm.tell([Candidate(i, 0, p.arch, {'macs': 0}, 0.0) for i, p in enumerate(algorithm.ask(generator(0)))])
    assert len(algorithm.ask(generator(1))) == 3 and algorithm.remarks() == {}
    algorithm.tell([Candidate(3, 1, algorithm.space.draw(generator(2), ()), {'macs': 0}, 1.0)])
    assert len(algorithm.ask(generator(3))) == 3 and 'prediction' in algorithm.remarks()


def test_a_first_generation_of_another_size() -> None:
    """ViT-ResNAS: 500 at random, then 150 a generation, half mutations and half crossovers; 3,350 in all."""
    numbers = dict(initial=500, population=150, parents=75, mutations=75, crossovers=75, mutation_prob=0.3)
    algorithm = published(**numbers)
    assert (algorithm.max_rounds, algorithm.max_candidates) == (20, 3350)
    for generation, count in enumerate((500, 150, 150)):
        proposals = algorithm.ask(np.random.default_rng(generation))
        assert len(proposals) == count
        if generation:
            assert [len(p.parents) for p in proposals] == [1] * 75 + [2] * 75
        told(algorithm, proposals)
    assert algorithm.settings()['initial'] == 500
    assert published(initial=50).settings() == published().settings()
