"""The learned sampler: a distribution over any space, exact in small ones; its budgets; its errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.families import FAMILIES, SMALL_SPACES, SPACES
from vitnas_core.costs import Cost
from vitnas_core.errors import CheckpointError, VitnasError
from vitnas_core.registry import ARCH_SAMPLERS
from vitnas_core.spaces import Arch, SearchSpace
from vitnas_core.training.samplers import FocusSampler

ALL = {**SPACES, **SMALL_SPACES}


def price(arch: Arch, input_size: Any = 0, num_classes: int = 0) -> Cost:
    """Made up: every number that is chosen, a word by its length, and 10 for a block."""
    numbers = [*arch.choices.values(), *(v for stage in arch.stages for v in stage.choices.values())]
    blocks = [block for stage in arch.stages for block in stage.blocks if block is not None]
    numbers += [v for block in blocks for v in block.values()]
    total = sum(len(v) if isinstance(v, str) else float(v) for v in numbers) + 10 * len(blocks)
    return Cost(1, 1 + round(10 * total))


def make(space: SearchSpace, steps: int = 6, seed: int = 0) -> FocusSampler:
    """A sampler with about ``steps`` budgets, and weights large enough that its choices are not all alike."""
    cheap, dear = price(space.smallest()).macs, price(space.largest()).macs
    sampler = FocusSampler(32, step=max((dear - cheap) / steps, 1.0), width=8)
    sampler.bind(space, price, seed)
    with torch.no_grad():
        for head in sampler.policy.heads.parameters():
            head.mul_(10)
    return sampler


def probabilities(sampler: FocusSampler, budget: float, archs: list[Arch]) -> np.ndarray:
    with torch.no_grad():
        return sampler.log_prob([budget] * len(archs), archs).exp().numpy()


@pytest.mark.parametrize('name', ALL)
def test_draws_are_of_the_space_the_generator_and_their_probability(name: str) -> None:
    space = ALL[name]
    sampler = make(space)
    budgets = np.linspace(sampler.low, sampler.high, 5).tolist()
    one, two = (sampler.draw(budgets, np.random.default_rng(3)) for _ in range(2))
    assert one.archs == two.archs and len(one.archs) == 5
    for arch in one.archs:
        space.validate(arch)
    torch.testing.assert_close(sampler.log_prob(budgets, one.archs), one.log_probs)
    # A batch is nothing but its members, whatever blocks they lack.
    alone = torch.cat([sampler.log_prob([b], [arch]) for b, arch in zip(budgets, one.archs)])
    torch.testing.assert_close(alone, one.log_probs)
    assert (one.entropies >= 0).all()
    assert sampler.sample(space, np.random.default_rng(0), 0.5)[0] in space


def assert_exact(sampler: FocusSampler) -> None:
    """Probabilities sum to one, and entropies on the way average to the entropy."""
    archs = list(sampler.space.iterate())
    for budget in (sampler.low, (sampler.low + sampler.high) / 2):
        with torch.no_grad():
            codes = torch.from_numpy(np.stack([sampler.space.encode(arch) for arch in archs]))
            places = sampler._places([budget] * len(archs))
            logs, ways = sampler.policy.log_prob(places, codes)
        assert logs.exp().sum().item() == pytest.approx(1, abs=1e-12)
        assert (logs.exp() * ways).sum().item() == pytest.approx(-(logs.exp() * logs).sum().item(), abs=1e-12)


@pytest.mark.parametrize('name', [*SMALL_SPACES, 'autoformer-test'])
def test_it_is_a_distribution_and_its_entropy_is_right(name: str) -> None:
    assert_exact(make(ALL[name]))


_options = st.lists(st.integers(0, 20), min_size=1, max_size=3, unique=True).map(sorted)


@given(
    st.lists(st.tuples(_options, _options, st.integers(0, 2), st.booleans()), min_size=1, max_size=2),
    st.integers(0, 2**31),
)
@settings(max_examples=40, deadline=None)
def test_it_is_a_distribution_over_any_grammar(stages: list, seed: int) -> None:
    read = []
    for width, k, count, free in stages:
        absent = dict(depth=count, optional=list(range(count))) if free else dict(depth=[0, count] if count else 0)
        read.append(dict(width=width, block=dict(k=k), **absent))
    assert_exact(make(SearchSpace.from_dict(dict(family='toy', stages=read)), seed=seed))


def test_draws_come_as_often_as_their_probability() -> None:
    space = SMALL_SPACES['last']
    sampler, archs = make(space), list(SMALL_SPACES['last'].iterate())
    drawn = sampler.draw([sampler.low] * 20_000, np.random.default_rng(0)).archs
    counts = np.array([drawn.count(arch) for arch in archs])
    expected = 20_000 * probabilities(sampler, sampler.low, archs)
    assert ((counts - expected) ** 2 / expected).sum() < 2 * len(archs)  # chi-square: its mean is len(archs)


def test_untrained_it_is_nearly_uniform_in_each_choice() -> None:
    space = SPACES['autoformer-tiny']
    sampler = FocusSampler(32, step=1e4)
    sampler.bind(space, price, 0)
    codes = np.stack([space.encode(a) for a in sampler.draw([sampler.low] * 4000, np.random.default_rng(0)).archs])
    for entry, dim in enumerate(space.dimensions):
        there = codes[codes[:, entry] >= 0, entry]
        shares = np.bincount(there, minlength=len(dim.options)) / len(there)
        assert np.abs(shares * len(dim.options) - 1).max() < 0.3, dim.path


def test_the_budget_is_heard_from_the_start() -> None:
    sampler = FocusSampler(32, step=100)
    sampler.bind(SPACES['autoformer-tiny'], price, 0)
    arch = sampler.space.largest()
    logs = sampler.log_prob(sampler.grid.tolist(), [arch] * len(sampler.grid))
    assert logs.std() > 0.03  # with all weights in ±0.1 it is 0.003


def test_budgets_are_the_ends_and_the_multiples_between_drawn_uniformly() -> None:
    space = FAMILIES['autoformer'].space
    sampler = FocusSampler(32, step=100)
    sampler.bind(space, price, 0)
    low, high = price(space.smallest()).macs, price(space.largest()).macs
    inner = [b for b in range(0, high, 100) if low + 50 <= b <= high - 50]
    grid = [low, *inner, high]
    assert sampler.grid.tolist() == grid and len(inner) > 2
    # B is uniform over the range, and rounded: a budget is drawn as often as B lies nearest to it.
    drawn = sampler.draw_budgets(20_000, np.random.default_rng(0))
    edges = [low, *((a + b) / 2 for a, b in zip(grid, grid[1:])), high]
    for budget, left, right in zip(grid, edges, edges[1:]):
        share = (right - left) / (high - low)
        assert drawn.count(budget) / 20_000 == pytest.approx(share, abs=0.015)
        assert share >= 0.25 * 100 / (high - low)  # every embedding is trained
    assert [sampler.grid_index(b) for b in grid] == list(range(len(grid)))
    assert sampler.grid_index(inner[0] + 30) == 1


def test_between_two_budgets_the_embedding_is_theirs_in_proportion() -> None:
    sampler = make(SPACES['autoformer-test'])
    a, b = sampler.grid[1:3]
    places = sampler._places([a, a + 0.25 * (b - a), b])
    ends = sampler.policy.budgets.weight[1:3]
    torch.testing.assert_close(sampler.policy._embed(places)[1], 0.75 * ends[0] + 0.25 * ends[1])
    archs = list(sampler.space.iterate())
    distances = []
    exact = probabilities(sampler, a, archs)
    for share in (0.0, 1e-9, 0.3, 0.6, 1.0):
        distances.append(np.abs(probabilities(sampler, a + share * (b - a), archs) - exact).sum())
    assert distances[0] == 0 and distances[1] < 1e-6  # continuous
    assert distances == sorted(distances)


@pytest.mark.parametrize('share', [-0.01, 1.01])
def test_a_budget_out_of_range_is_refused_with_the_range(share: float) -> None:
    sampler = make(SPACES['autoformer-test'])
    budget = sampler.low + share * (sampler.high - sampler.low)
    words = (
        rf'a budget of autoformer-test should be from {sampler.low:.6g} to {sampler.high:.6g} MACs.*got {budget:.6g}'
    )
    for refuse in (
        lambda: sampler.draw([sampler.low, budget], np.random.default_rng(0)),
        lambda: sampler.log_prob([budget], [sampler.space.largest()]),
    ):
        with pytest.raises(VitnasError, match=words):
            refuse()


def test_it_prices_with_the_backbone_and_its_settings() -> None:
    backbone = FAMILIES['autoformer-conditional'].elastic()
    sampler = ARCH_SAMPLERS.build(dict(type='vitnas.FocusSampler', input_size=(32, 48), num_classes=10, step=1e5))
    sampler.bind(backbone.space, backbone.price, 0)
    for arch, bound in ((backbone.space.smallest(), sampler.low), (backbone.space.largest(), sampler.high)):
        assert backbone.price(arch, (32, 48), 10).macs == sampler.price(arch).macs == bound


def test_a_space_of_one_has_one_budget_and_one_draw() -> None:
    arch = SPACES['autoformer-test'].largest()
    sampler = FocusSampler(32, step=1e6)
    sampler.bind(SearchSpace.of(arch), price, 0)
    assert sampler.low == sampler.high and len(sampler.grid) == 1
    drawn = sampler.draw([sampler.low] * 3, np.random.default_rng(0))
    assert drawn.archs == [arch] * 3 and not drawn.log_probs.any()


def test_state_goes_to_a_sampler_of_the_same_kind_only() -> None:
    space = SPACES['autoformer-test']
    one, two = make(space, seed=1), make(space, seed=2)
    archs = list(space.iterate())
    assert not np.allclose(probabilities(one, one.low, archs), probabilities(two, two.low, archs))
    two.load_state_dict(one.state_dict())
    assert np.array_equal(probabilities(one, one.low, archs), probabilities(two, two.low, archs))
    for other, words in (
        (make(space, steps=7), f'its step is {one.step}, not'),
        (make(SPACES['autoformer-tiny']), 'it is of another space'),
    ):
        with pytest.raises(CheckpointError, match=f'sampler of the checkpoint does not fit: {words}'):
            other.load_state_dict(one.state_dict())


@pytest.mark.parametrize(
    ('arguments', 'words'),
    [
        (dict(step=0), '`step` should be above 0, but got 0'),
        (dict(step='200M'), "but got '200M'"),
        (dict(width=0), '`width` should be a whole number of at least 1, but got 0'),
        (dict(step=1e-3), 'is 0.001 MACs, which gives [0-9]+ budgets from'),
    ],
)
def test_mistakes(arguments: dict, words: str) -> None:
    with pytest.raises(VitnasError, match=words):
        FocusSampler(32, **arguments).bind(SPACES['autoformer-test'], price, 0)


def test_a_part_of_the_space_is_refused() -> None:
    sampler = make(SPACES['autoformer-test'])
    with pytest.raises(VitnasError, match='draws from the space that it was built for, not from a part of it'):
        sampler.sample(sampler.space.upper(0.5), np.random.default_rng(0), 0.0)
