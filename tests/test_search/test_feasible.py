"""Draws within limits terminate, however narrow the limits are."""

from __future__ import annotations

import time

import numpy as np
import pytest

from tests.families import BACKBONES, FAMILIES, SMALL_SPACES
from vitnas_core.costs import Constraint, Cost
from vitnas_core.errors import InfeasibleError
from vitnas_core.search.feasible import FeasibleSpace
from vitnas_core.spaces import Arch


@pytest.mark.parametrize('family', BACKBONES)
def test_every_architecture_of_a_narrow_window_is_found(family: str, rng: np.random.Generator) -> None:
    backbone = FAMILIES[family].elastic()

    def price(arch: Arch) -> Cost:
        return backbone.price(arch, 32, 10)

    params = sorted(price(arch).params for arch in backbone.space.iterate())
    low, high = params[len(params) // 2], params[len(params) // 2 + 5]
    inside = {arch for arch in backbone.space.iterate() if low <= price(arch).params <= high}
    assert 6 <= len(inside) < backbone.space.size() / 20  # random draws rarely meet it
    feasible = FeasibleSpace(backbone.space, price, Constraint(dict(params=(low, high))))
    seen: set[Arch] = set()
    for _ in inside:
        arch = feasible.draw(rng, seen)
        assert arch is not None
        seen.add(arch)
    assert seen == inside
    assert feasible.draw(rng, seen) is None


def test_a_window_that_random_draws_never_meet_in_a_huge_space(rng: np.random.Generator) -> None:
    from functools import partial

    from vitnas_core import zoo
    from vitnas_core.backbones import AutoFormer

    space, price = zoo.load_space('autoformer-tiny'), partial(AutoFormer.cost, input_size=224, num_classes=1000)
    limits = dict(params=(None, price(space.smallest()).params * 1.02))
    feasible = FeasibleSpace(space, price, Constraint(limits))
    start, seen = time.perf_counter(), set()
    for _ in range(10):
        arch = feasible.draw(rng, seen)
        assert arch is not None and arch in feasible and arch not in seen
        seen.add(arch)
    assert time.perf_counter() - start < 20


def test_a_space_is_exhausted_exactly(rng: np.random.Generator) -> None:
    space, seen = SMALL_SPACES['optional'], set()
    feasible = FeasibleSpace(space, lambda arch: Cost(1, 1), Constraint())
    while (arch := feasible.draw(rng, seen)) is not None:
        assert arch not in seen
        seen.add(arch)
    assert len(seen) == space.size()


def test_infeasible_is_said_at_once() -> None:
    backbone = FAMILIES['autoformer'].elastic()
    start = time.perf_counter()
    with pytest.raises(InfeasibleError, match='the reachable range is'):
        FeasibleSpace(backbone.space, lambda arch: backbone.price(arch, 32), Constraint(dict(macs=(None, 10))))
    assert time.perf_counter() - start < 1
