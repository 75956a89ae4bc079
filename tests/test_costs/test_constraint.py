"""Limits on costs: architectures that meet them, and infeasible limits with their reachable range."""

import time

import numpy as np
import pytest

from tests.families import BACKBONES
from vitnas_core import zoo
from vitnas_core.backbones import AutoFormer
from vitnas_core.costs import Constraint, Cost, reachable_range
from vitnas_core.errors import InfeasibleError, VitnasError
from vitnas_core.spaces import SearchSpace

every_family = pytest.mark.parametrize('family', BACKBONES.values(), ids=BACKBONES.keys())


def price(arch) -> Cost:
    return AutoFormer.cost(arch, 224, 1000)


def test_met_and_violation() -> None:
    limits = Constraint(dict(macs=(None, 1.4e9), params=(5e6, 6e6)))
    assert limits.met(Cost(5_500_000, 1_300_000_000))
    assert not limits.met(Cost(5_500_000, 1_500_000_000))
    assert not limits.met(Cost(4_000_000, 1_300_000_000))
    assert limits.violation(Cost(4_000_000, 2_100_000_000)) == pytest.approx(0.5 + 0.2)
    assert Constraint().met(Cost(10**12, 10**12))
    assert Constraint(dict(macs=(None, 0))).violation(Cost(1, 1)) == np.inf


@every_family
@pytest.mark.parametrize('name', ['params', 'macs'])
def test_reachable_range_is_that_of_the_whole_space(family, name: str) -> None:
    data = family.space.to_dict()
    for stage in data['stages']:  # a part of the space that can be enumerated
        stage['depth'] = stage['depth'][:2]
    space = SearchSpace.from_dict(data)
    assert space.size() < 10_000
    values = [getattr(family.cls.cost(arch, 64), name) for arch in space.iterate()]
    assert reachable_range(space, lambda a: family.cls.cost(a, 64), name) == (min(values), max(values))


def test_reachable_range_where_a_choice_works_against_the_rest() -> None:
    """The first option need not be the cheapest: a strided operation, or a patch size."""
    space = SearchSpace.from_dict(
        dict(family='toy', patch=[14, 16, 32], stages=[dict(width=[1, 2], depth=[1, 2], block=dict(op=['a', 'b']))])
    )

    def cost(arch) -> Cost:
        per = {'a': 7, 'b': 3}
        macs = sum(per[b['op']] for b in arch.stages[0].blocks) * arch.stages[0]['width'] * 1000 // arch['patch']
        return Cost(1, macs)

    values = [cost(arch).macs for arch in space.iterate()]
    assert reachable_range(space, cost, 'macs') == (min(values), max(values))


@pytest.mark.parametrize('name', [n for n in zoo.space_names() if n.startswith('autoformer')])
def test_find_meets_narrow_limits(name: str, rng: np.random.Generator) -> None:
    space = zoo.load_space(name)
    for _ in range(5):
        target = price(space.sample(rng))
        limits = Constraint(dict(macs=(target.macs * 0.999, target.macs * 1.001), params=(None, target.params * 1.01)))
        found = limits.find(space, price)
        assert found in space
        assert limits.met(price(found))


def test_a_limit_that_nothing_meets_is_answered_at_once_with_the_range() -> None:
    space = zoo.load_space('autoformer-tiny')
    low, high = reachable_range(space, price, 'macs')
    start = time.perf_counter()
    with pytest.raises(InfeasibleError) as err:
        Constraint(dict(macs=(None, 0.5e9))).find(space, price)
    assert time.perf_counter() - start < 10  # milliseconds on an idle machine
    assert str(err.value) == (
        'no architecture of autoformer-tiny has macs <= 500M; '
        f'the reachable range is {low / 1e9:.5g}G to {high / 1e9:.5g}G'
    )
    with pytest.raises(InfeasibleError, match=r'has params >= 20M; the reachable range is 5\.3661M to 10\.517M'):
        Constraint(dict(params=(20e6, None))).find(space, price)


def test_limits_that_only_clash_with_each_other() -> None:
    space = zoo.load_space('autoformer-tiny')
    with pytest.raises(InfeasibleError) as err:
        Constraint(dict(macs=(None, 1.3e9), params=(9e6, None))).find(space, price)
    assert str(err.value).startswith('found no architecture of autoformer-tiny with macs <= 1.3G, params >= 9M; the ')
    assert 'the reachable range is macs 1.1665G to 2.2632G, params 5.3661M to 10.517M, and the nearest' in str(
        err.value
    )


def test_find_meets_very_narrow_windows(rng: np.random.Generator) -> None:
    space = zoo.load_space('autoformer-tiny')
    for _ in range(12):
        macs = price(space.sample(rng)).macs
        limits = Constraint(dict(macs=(macs * 0.9995, macs * 1.0005)))
        assert limits.met(price(limits.find(space, price)))


@pytest.mark.parametrize(
    ('limits', 'message'),
    [
        (dict(flops=(None, 1)), "a constraint should be on params or macs or latency, but got 'flops'"),
        (dict(macs=1e9), r'the limits of macs should be a pair \(low, high\)'),
        (dict(macs=(2, 1)), 'with low <= high'),
        (dict(macs=('a', 1)), 'the limits of macs should be numbers with low <= high'),
        (dict(macs=(float('nan'), 1)), 'with low <= high'),
    ],
)
def test_malformed_limits(limits: dict, message: str) -> None:
    with pytest.raises(VitnasError, match=message):
        Constraint(limits)
