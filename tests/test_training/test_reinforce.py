"""REINFORCE: its gradient against an enumerated expectation, its options, and a toy problem with a known truth."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.families import SMALL_SPACES, SPACES
from vitnas_core.errors import VitnasError
from vitnas_core.spaces import Arch, SearchSpace
from vitnas_core.training import Reinforce
from vitnas_core.training.samplers import FocusSampler

from .test_focus_sampler import make, price

SGD = dict(type='SGD', lr=1.0)
BETA = 0.3


def accuracy(arch: Arch) -> float:
    """Made up, from 0 to 1, without structure."""
    return int(arch.digest(), 16) % 1000 / 1000


def reward(sampler: FocusSampler, arch: Arch, budget: float) -> float:
    """Eq. 7, written out."""
    return accuracy(arch) - BETA * abs(budget / price(arch).macs - 1)


def shares(sampler: FocusSampler) -> dict[float, float]:
    """How likely each budget of the grid is: B is uniform over the range and rounded to the nearest."""
    grid = sampler.grid.tolist()
    edges = [grid[0], *((a + b) / 2 for a, b in zip(grid, grid[1:])), grid[-1]]
    return {b: (right - left) / (grid[-1] - grid[0]) for b, left, right in zip(grid, edges, edges[1:])}


def objective(sampler: FocusSampler, archs: list[Arch], entropy: float) -> torch.Tensor:
    """Eq. 6, enumerated; and the entropy of π, which an option adds."""
    total: Any = 0.0
    for budget, share in shares(sampler).items():
        logs = sampler.log_prob([budget] * len(archs), archs)
        rewards = torch.tensor([reward(sampler, arch, budget) for arch in archs], dtype=torch.float64)
        total = total + share * (logs.exp() * (rewards - entropy * logs)).sum()
    return total


def gradient(sampler: FocusSampler, value: torch.Tensor) -> torch.Tensor:
    parameters = list(sampler.policy.parameters())
    grads = torch.autograd.grad(value, parameters, allow_unused=True)
    return torch.cat([(torch.zeros_like(p) if grad is None else grad).flatten() for p, grad in zip(parameters, grads)])


def gradients(sampler: FocusSampler) -> torch.Tensor:
    """Those of the last step; a head that no architecture of it needed has none."""
    parameters = sampler.policy.parameters()
    return torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in parameters])


def tiny() -> FocusSampler:
    space = SearchSpace.from_dict(
        dict(family='toy', stages=[dict(width=[1, 2], depth=[1, 2], block=dict(k=[3, 5], op=['a', 'bb']))])
    )
    return make(space, steps=2)


@pytest.mark.parametrize('entropy', [0.0, 0.2])
def test_the_expected_gradient_is_that_of_the_expected_reward(entropy: float) -> None:
    """Each way weighted by its probability: Σ π R ∇log π = ∇ Σ π R, exactly."""
    sampler = tiny()
    archs = list(sampler.space.iterate())
    reinforce = Reinforce(sampler, SGD, beta=BETA, entropy=entropy)
    wanted = gradient(sampler, objective(sampler, archs, entropy))
    found = torch.zeros_like(wanted)
    codes = torch.from_numpy(np.stack([sampler.space.encode(arch) for arch in archs]))
    for budget, share in shares(sampler).items():
        for i, arch in enumerate(archs):
            log_prob, way = sampler.policy.log_prob(sampler._places([budget]), codes[i : i + 1])
            earned = reward(sampler, arch, budget) + entropy * way.detach()
            one = -gradient(sampler, reinforce.loss(earned, log_prob, way))
            found += share * one * log_prob.detach().exp()
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    'settings', [dict(), dict(baseline=0.9), dict(entropy=0.2)], ids=['paper', 'baseline', 'entropy']
)
def test_steps_ascend_the_expected_reward(settings: dict) -> None:
    """The mean of many real steps, from the same θ, is the enumerated gradient within the error of the mean."""
    sampler = tiny()
    archs = list(sampler.space.iterate())
    wanted = gradient(sampler, objective(sampler, archs, settings.get('entropy', 0.0)))
    reinforce = Reinforce(sampler, SGD, beta=BETA, num_archs=8, **settings)
    before = {name: value.clone() for name, value in sampler.policy.state_dict().items()}
    flat = torch.cat([p.detach().flatten() for p in sampler.policy.parameters()])
    steps = []
    for i in range(400):
        sampler.policy.load_state_dict(before)
        measured = reinforce.step(np.random.default_rng(i), accuracy)
        assert measured['reward'] == pytest.approx(measured['accuracy'] - BETA * measured['miss'])
        steps.append(torch.cat([p.detach().flatten() for p in sampler.policy.parameters()]) - flat)
    found = torch.stack(steps)
    error = found.std(0) / len(found) ** 0.5
    assert ((found.mean(0) - wanted).abs() <= 5 * error + 1e-9).all()
    assert torch.dot(found.mean(0), wanted) > 0.8 * wanted.norm() ** 2  # and it is not lost in the error


def test_a_baseline_has_less_noise() -> None:
    noise = {}
    for decay in (None, 0.9):
        sampler = tiny()
        reinforce = Reinforce(sampler, dict(type='SGD', lr=0.0), num_archs=4, baseline=decay)
        seen = []
        for i in range(200):
            reinforce.step(np.random.default_rng(i), lambda arch: 0.8 + 0.01 * accuracy(arch))
            seen.append(gradients(sampler))
        noise[decay] = torch.stack(seen[50:]).std(0).norm()
    assert noise[0.9] < 0.2 * noise[None]


def test_the_entropy_bonus_is_under_the_baseline() -> None:
    """Or it brings back the noise that the baseline takes away: a long way has an entropy of many nats."""
    noise = {}
    for entropy in (0.0, 0.01):
        sampler = FocusSampler(32, step=1e5)
        sampler.bind(SPACES['autoformer-tiny'], price, 0)
        reinforce = Reinforce(sampler, dict(type='SGD', lr=0.0), num_archs=8, baseline=0.9, entropy=entropy)
        seen = []
        for i in range(60):
            reinforce.step(np.random.default_rng(i), lambda arch: 0.8 + 0.02 * accuracy(arch))
            seen.append(gradients(sampler))
        noise[entropy] = torch.stack(seen[20:]).std(0).norm()
    assert noise[0.01] < 2 * noise[0.0]


def test_averages_are_one_a_budget_and_go_with_the_state() -> None:
    sampler = tiny()
    reinforce = Reinforce(sampler, SGD, baseline=0.5)
    budgets = sampler.grid.tolist()[:2]
    for rewards, advantages in (([1.0, 0.0], [0.0, 0.0]), ([2.0, 1.0], [1.0, 1.0]), ([1.5, 0.5], [0.0, 0.0])):
        found = reinforce._advantages(budgets, torch.tensor(rewards, dtype=torch.float64))
        assert found.tolist() == advantages
    other = Reinforce(tiny(), SGD, baseline=0.5)
    other.load_state_dict(reinforce.state_dict())
    assert other._advantages(budgets, torch.tensor([2.0, 2.0])).tolist() == [0.5, 1.5]


@pytest.mark.parametrize(
    ('settings', 'words'),
    [
        (dict(beta=-1), '`beta` should be a number of at least 0, but got -1'),
        (dict(beta='high'), "`beta` should be a number of at least 0, but got 'high'"),
        (dict(entropy=float('nan')), '`entropy` should be a number of at least 0, but got nan'),
        (dict(num_archs=0), '`num_archs` should be a whole number of at least 1, but got 0'),
        (dict(baseline=1.0), '`baseline` should be a decay from 0 to less than 1, or None, but got 1.0'),
    ],
)
def test_mistakes(settings: dict, words: str) -> None:
    with pytest.raises(VitnasError, match=words):
        Reinforce(tiny(), SGD, **settings)


@pytest.mark.parametrize('name', ['s3-initial', 'vit-resnas-tiny', 'nasvit', *SMALL_SPACES])
def test_it_learns_to_meet_budgets_in_any_space(name: str) -> None:
    """Nothing in it knows AutoFormer: other families' grammars, with a made-up cost, rewarded by the cost alone."""
    space = {**SPACES, **SMALL_SPACES}[name]
    sampler = FocusSampler(32, step=(price(space.largest()).macs - price(space.smallest()).macs) / 2)
    sampler.bind(space, price, 0)
    reinforce = Reinforce(sampler, dict(type='AdamW', lr=1e-2), beta=1.0, num_archs=16, baseline=0.9)

    @torch.no_grad()
    def miss() -> float:
        budgets = [budget for budget in sampler.grid.tolist() for _ in range(100)]
        drawn = sampler.draw(budgets, np.random.default_rng(0)).archs
        return float(np.mean([abs(b / price(arch).macs - 1) for b, arch in zip(budgets, drawn)]))

    before = miss()
    for i in range(120):
        reinforce.step(np.random.default_rng(i), lambda arch: 0.5)
    assert miss() < 0.8 * before
