"""Evolution against the published loop, on the same fitness."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.reference import read
from vitnas_core import zoo
from vitnas_core.backbones import AutoFormer
from vitnas_core.costs import Constraint
from vitnas_core.search import Candidate, Evolution, Proposal, ranked
from vitnas_core.search.feasible import FeasibleSpace
from vitnas_core.spaces import Arch

REFERENCE = read('autoformer', 'evolution')
"""Runs of the published loop, with its numbers, its limits and its fitness."""

NUMBER = r'(\d+(?:\.\d+)?)'
LAYOUT = (
    '# - #*mean|ratio_i - (# if i even else #)| - #*mean|heads_i - (# if i%#==0 else #)| - |depth-#| - |embed-#|/# ; '
    'optimum #'
)


@dataclasses.dataclass(frozen=True)
class Fitness:
    """A made-up score, with a known optimum where all terms are zero."""

    best: float = 100
    ratio_factor: float = 10
    even_ratio: float = 3.5
    odd_ratio: float = 4.0
    heads_factor: float = 10
    first_heads: float = 4
    period: float = 3
    other_heads: float = 3
    depth: float = 13
    embed: float = 216
    embed_unit: float = 24
    optimum: float = 100

    @classmethod
    def published(cls) -> Fitness:
        """As REFERENCE['fitness'] says."""
        found = re.fullmatch(re.escape(LAYOUT).replace(re.escape('#'), NUMBER), REFERENCE['fitness'])
        assert found, f'the fitness of evolution.json should look like {LAYOUT}'
        return cls(*map(float, found.groups()))

    def __call__(self, arch: Arch) -> float:
        blocks = arch.stages[0].blocks
        ratios = [abs(b['mlp_ratio'] - (self.odd_ratio if i % 2 else self.even_ratio)) for i, b in enumerate(blocks)]
        heads = [
            abs(b['num_heads'] - (self.other_heads if i % self.period else self.first_heads))
            for i, b in enumerate(blocks)
        ]
        size = abs(len(blocks) - self.depth) + abs(arch.stages[0]['embed_dim'] - self.embed) / self.embed_unit
        return self.best - self.ratio_factor * np.mean(ratios) - self.heads_factor * np.mean(heads) - size


FITNESS = Fitness()
generator = np.random.default_rng
PROPOSED = ['e42ea4aad903ed00', '5fbc2d14d0b42560', 'bd329be6c084f600']
"""Of :func:`ours` on FITNESS: nothing of it is in the folder of the published codes."""


def ours(space: str = 'tiny', millions: tuple[float, float] = (5, 9), **settings: Any) -> Evolution:
    """The algorithm, set up for a range of parameters."""
    price = partial(AutoFormer.cost, input_size=224, num_classes=1000)
    low, high = (1e6 * limit for limit in millions)
    algorithm = Evolution(**settings)
    algorithm.setup(FeasibleSpace(zoo.load_space(f'autoformer-{space}'), price, Constraint(dict(params=(low, high)))))
    return algorithm


def published() -> Evolution:
    """The algorithm with the published numbers, set up for the published limits."""
    defaults, limits = REFERENCE['defaults'], REFERENCE['limits_used']
    return ours(
        REFERENCE['space'].split()[-1],
        (limits['min_param_limits'], limits['param_limits']),
        population=defaults['population_num'],
        parents=defaults['select_num'],
        mutations=defaults['mutation_num'],
        crossovers=defaults['crossover_num'],
        mutation_prob=dict(depth=defaults['s_prob'], stage=defaults['s_prob'], block=defaults['m_prob']),
    )


def told(algorithm: Evolution, proposals: list[Proposal], fitness: Fitness = FITNESS) -> list[Candidate]:
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


@pytest.mark.parametrize('run', REFERENCE['runs'], ids=lambda run: f'seed {run["seed"]}')
def test_the_published_winners_score_as_published(run: dict[str, Any]) -> None:
    depth, *rest = run['final_best']['candidate']
    blocks = [dict(mlp_ratio=ratio, num_heads=heads) for ratio, heads in zip(rest[:depth], rest[depth : 2 * depth])]
    arch = Arch.from_dict(dict(family='autoformer', stages=[dict(embed_dim=rest[-1], blocks=blocks)]))
    assert Fitness.published()(arch) == pytest.approx(run['final_best']['fitness'], abs=1e-4)
    assert arch in published().space


@pytest.mark.parametrize('seed', [0, 1, 2])
def test_the_optimum_is_reached_about_as_soon_as_published(seed: int) -> None:
    algorithm, fitness, numbers = published(), Fitness.published(), REFERENCE['defaults']
    bests = [run['best_by_generation'] for run in REFERENCE['runs']]
    slowest = max(best.index(fitness.optimum) if fitness.optimum in best else len(best) for best in bests)
    best: list[float] = []
    for generation in range(2 * slowest + 2):  # about: other draws take longer or shorter
        proposals = algorithm.ask(np.random.default_rng([seed, generation]))
        assert len(proposals) == numbers['population_num'] and all(p.arch in algorithm.space for p in proposals)
        if generation:  # mutations and crossovers, not chance
            assert sum(bool(p.parents) for p in proposals) >= numbers['mutation_num']
        told(algorithm, proposals, fitness)
        best.append(ranked(algorithm.history)[0].score)
        if best[-1] == fitness.optimum:
            break
    assert best == sorted(best) and best[-1] == fitness.optimum, best
    assert len({c.arch for c in algorithm.history}) == len(algorithm.history)


@pytest.mark.parametrize('seed', [0, 1, 2])
def test_proposals_are_those_of_the_journals_that_there_are(seed: int) -> None:
    """Digests of what the first release proposed: a change would end every search that is under way."""
    algorithm, found = ours(), hashlib.sha256()
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
            algorithm = ours(predictor=predictor)
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
    algorithm = ours(predictor={}, population=3)
    algorithm.tell([Candidate(i, 0, p.arch, {'macs': 0}, 0.0) for i, p in enumerate(algorithm.ask(generator(0)))])
    assert len(algorithm.ask(generator(1))) == 3 and algorithm.remarks() == {}
    algorithm.tell([Candidate(3, 1, algorithm.space.draw(generator(2), ()), {'macs': 0}, 1.0)])
    assert len(algorithm.ask(generator(3))) == 3 and 'prediction' in algorithm.remarks()


def test_a_first_generation_of_another_size() -> None:
    """ViT-ResNAS: 500 at random, then 150 a generation, half mutations and half crossovers; 3,350 in all."""
    numbers = dict(initial=500, population=150, parents=75, mutations=75, crossovers=75, mutation_prob=0.3)
    algorithm = ours(**numbers)
    assert (algorithm.max_rounds, algorithm.max_candidates) == (20, 3350)
    for generation, count in enumerate((500, 150, 150)):
        proposals = algorithm.ask(np.random.default_rng(generation))
        assert len(proposals) == count
        if generation:
            assert [len(p.parents) for p in proposals] == [1] * 75 + [2] * 75
        told(algorithm, proposals)
    assert algorithm.settings()['initial'] == 500
    assert ours(initial=50).settings() == ours().settings()
