"""Samplers draw from the space, reproducibly; a warm-up opens it from the largest architecture."""

from __future__ import annotations

import numpy as np
import pytest

from tests.families import SMALL_SPACES, SPACES
from vitnas_core import zoo
from vitnas_core.errors import VitnasError
from vitnas_core.training.samplers import (
    FocusSampler,
    MultiArchSampler,
    SandwichSampler,
    UniformSampler,
    WarmUpSampler,
)

ALL = {**SPACES, **SMALL_SPACES}
SAMPLERS = {
    'uniform': UniformSampler(),
    'sandwich': SandwichSampler(3),
    'multi-arch': MultiArchSampler(5),
    'warm-up': WarmUpSampler(dict(type='vitnas.SandwichSampler', num_random=2), fraction=0.5),
}


@pytest.mark.parametrize('name', ALL)
@pytest.mark.parametrize('kind', SAMPLERS)
def test_draws_are_of_the_space_and_of_the_generator(name: str, kind: str) -> None:
    space, sampler = ALL[name], SAMPLERS[kind]
    for progress in (0.0, 0.2, 0.9):
        draws = [sampler.sample(space, np.random.default_rng([7, 3]), progress) for _ in range(2)]
        assert draws[0] == draws[1] and len(draws[0]) == sampler.num_archs
        for arch in draws[0]:
            space.validate(arch)
        if sampler.largest_first:
            assert draws[0][0] == space.largest()


def test_sandwich_has_the_smallest_second() -> None:
    space = zoo.load_space('autoformer-tiny')
    archs = SandwichSampler().sample(space, np.random.default_rng(0), 0.0)
    assert archs[:2] == [space.largest(), space.smallest()] and len(archs) == 4


@pytest.mark.parametrize('name', ALL)
def test_multi_arch_spreads_over_the_options(name: str) -> None:
    """Drawn without replacement, from each option as often as it takes; over many steps all are equally likely."""
    space, sampler, rng = ALL[name], MultiArchSampler(7), np.random.default_rng(0)
    seen: list[np.ndarray] = []
    for _ in range(100):
        codes = np.stack([space.encode(arch) for arch in sampler.sample(space, rng, 1.0)])
        for dim, column in zip(space.dimensions, codes.T):
            counts = np.bincount(column[column >= 0], minlength=len(dim.options))
            assert counts.max() <= -(-7 // len(dim.options)), dim.path
        seen.append(codes)
    for dim, column in zip(space.dimensions, np.concatenate(seen).T):
        if not dim.needs:
            shares = np.bincount(column, minlength=len(dim.options)) / len(column)
            np.testing.assert_allclose(shares, 1 / len(dim.options), atol=0.08, err_msg=dim.path)


def test_warm_up_opens_from_the_largest() -> None:
    """ViT-ResNAS: at epoch e of E the largest min(1 + floor(e (n - 1) / E), n) options are open."""
    space = zoo.load_space('autoformer-tiny')  # three widths, three depths
    sampler = WarmUpSampler(UniformSampler(), fraction=0.25)

    def widths(progress: float) -> set:
        rng = np.random.default_rng(0)
        return {sampler.sample(space, rng, progress)[0].stages[0]['embed_dim'] for _ in range(100)}

    assert sampler.sample(space, np.random.default_rng(0), 0.0) == [space.largest()]
    assert widths(0.12) == {240} and widths(0.125) == {216, 240} and widths(0.24) == {216, 240}
    assert widths(0.25) == widths(1.0) == {192, 216, 240}


@pytest.mark.parametrize(
    ('make', 'words'),
    [
        (lambda: SandwichSampler(-1), '`num_random` should be a whole number of at least 0, but got -1'),
        (lambda: MultiArchSampler(0), '`num_archs` should be a whole number of at least 1, but got 0'),
        (lambda: WarmUpSampler(UniformSampler(), 0), '`fraction` should be above 0 and at most 1, but got 0'),
        (lambda: WarmUpSampler(FocusSampler(224)), 'draws from any part of it; FocusSampler does not'),
    ],
)
def test_mistakes(make, words: str) -> None:
    with pytest.raises(VitnasError, match=words):
        make()
