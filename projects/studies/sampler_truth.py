"""Test FocusFormer's sampler on a known truth: ``python projects/studies/sampler_truth.py [--seeds 0 1 2 3 4]``.

A toy space of 3,840 architectures has made-up costs and accuracies, so the best one under every budget is known. After
training, two things are measured for budgets across the range. How much of π's mass lies within 1 % of the best under
the budget, compared with a uniform draw? How far is the median cost of π's draws from the budget?
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # run as a script, it finds the repository's packages

import vitnas_core  # noqa: F401  (before mm: it repairs imports)
from vitnas_core.costs import Cost
from vitnas_core.spaces import Arch, SearchSpace
from vitnas_core.training import Reinforce
from vitnas_core.training.samplers import FocusSampler
from vitnas_core.utils.text import table

GAIN, WITHIN, NEAR = 5.0, 0.05, 0.01
"""Thresholds: gain over the uniform mass, distance of the median cost from the budget, and margin for near best."""

SETTINGS: dict[str, dict[str, Any]] = {
    'batched, with baseline': dict(
        iterations=2000, beta=0.5, num_archs=32, baseline=0.9, entropy=0.007, optimizer=dict(type='AdamW', lr=2e-3)
    ),
    "the paper's: one architecture, no baseline": dict(iterations=1600, optimizer=dict(type='AdamW', lr=1e-3)),
}
"""The second has K = 100 iterations at each of 16 updates (500 epochs, τ = 30) and the ImageNet learning rate."""


def toy_space(depths: Sequence[int] = (4, 5)) -> SearchSpace:
    """Build a space with the options of AutoFormer-T and four or five blocks: 3 · (4⁴ + 4⁵) architectures."""
    block = dict(num_heads=[3, 4], mlp_ratio=[3.5, 4.0])
    stage = dict(embed_dim=[192, 216, 240], depth=list(depths), block=block)
    return SearchSpace.from_dict(dict(family='toy', name='toy', stages=[stage]))


def read(arch: Arch) -> tuple[int, list[tuple[int, float]]]:
    """Return the width, and (heads, MLP ratio) of each block."""
    (stage,) = arch.stages
    blocks = [(int(block['num_heads']), float(block['mlp_ratio'])) for block in stage.blocks if block is not None]
    return int(stage['embed_dim']), blocks


@cache
def toy_price(arch: Arch, input_size: int | tuple[int, int] = 224, num_classes: int = 0) -> Cost:
    """Price the linear layers of a transformer: width · (256 · heads + 2 · width · ratio) per block, 197 tokens."""
    width, blocks = read(arch)
    params = sum(int(width * (256 * heads + 2 * width * ratio)) for heads, ratio in blocks)
    return Cost(params, 197 * params)


@cache
def toy_accuracy(arch: Arch) -> float:
    """Make up an accuracy: +4 points for e times the cost, −2 for every rise of heads or fall of MLP ratios."""
    _, blocks = read(arch)
    rises = sum(after[0] > before[0] for before, after in zip(blocks, blocks[1:]))
    falls = sum(after[1] < before[1] for before, after in zip(blocks, blocks[1:]))
    return 0.70 + 0.04 * math.log(toy_price(arch).macs / 2e8) - 0.02 * (rises + falls)


@dataclass
class Truth:
    """All architectures of the toy space with their costs and accuracies."""

    space: SearchSpace

    @cached_property
    def archs(self) -> list[Arch]:
        """All architectures."""
        return list(self.space.iterate())

    @cached_property
    def macs(self) -> np.ndarray:
        """MACs of all architectures."""
        return np.array([toy_price(arch).macs for arch in self.archs])

    @cached_property
    def accuracies(self) -> np.ndarray:
        """Accuracies of all architectures."""
        return np.array([toy_accuracy(arch) for arch in self.archs])

    def near_best(self, budget: float) -> np.ndarray:
        """Mask of architectures that meet a budget and are within 1 % of the best one."""
        met = self.macs <= budget
        return met & (self.accuracies >= (1 - NEAR) * self.accuracies[met].max())

    @torch.no_grad()
    def probabilities(self, sampler: FocusSampler, budget: float) -> np.ndarray:
        """π(B) of each architecture."""
        return sampler.log_prob([budget] * len(self.archs), self.archs).exp().numpy()


def train(space: SearchSpace, seed: int, iterations: int, **settings: Any) -> FocusSampler:
    """Train a sampler on the toy accuracies."""
    sampler = FocusSampler(input_size=224, step=2e7)
    sampler.bind(space, toy_price, seed)
    reinforce = Reinforce(sampler, **settings)
    for i in range(iterations):
        reinforce.step(np.random.default_rng([seed, i]), toy_accuracy)
    return sampler


def judge(sampler: FocusSampler, truth: Truth, num_budgets: int = 7) -> list[dict[str, float]]:
    """Measure, for budgets across the range, the gain in mass near the best and the miss of the median cost."""
    rows = []
    margin = 0.1 * (sampler.high - sampler.low)  # there are hardly any architectures at the very ends
    for budget in np.linspace(sampler.low + margin, sampler.high - margin, num_budgets):
        probs, near = truth.probabilities(sampler, budget), truth.near_best(budget)
        order = np.argsort(truth.macs)
        median = truth.macs[order][np.searchsorted(np.cumsum(probs[order]), 0.5)]
        mass, uniform = float(probs[near].sum()), float(near.mean())
        rows.append(dict(budget=budget, mass=mass, uniform=uniform, gain=mass / uniform, miss=median / budget - 1))
    return rows


def main(args: list[str] | None = None) -> bool:
    """Train and judge; print one table per setting.

    Returns:
        Whether the first setting passes at every seed.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--seeds', type=int, nargs='+', default=[0, 1, 2, 3, 4])
    options = parser.parse_args(args)
    torch.set_num_threads(1)
    truth, passed = Truth(toy_space()), []
    for name, settings in SETTINGS.items():
        rows, start = [], time.perf_counter()
        for seed in options.seeds:
            found = judge(train(truth.space, seed, **settings), truth)
            gains, misses = [row['gain'] for row in found], [abs(row['miss']) for row in found]
            good = sum(g >= GAIN and m <= WITHIN for g, m in zip(gains, misses))
            rows.append(
                [str(seed), f'{min(gains):.1f} to {max(gains):.1f}', f'{max(misses):.1%}', f'{good}/{len(found)}']
            )
            passed.append(good == len(found))
        print(f'\n{name} ({(time.perf_counter() - start) / len(options.seeds):.0f} s per seed)')
        print(
            table(
                ['seed', 'mass near the best / uniform', 'largest miss of the median cost', 'budgets that pass'], rows
            )
        )
    return all(passed[: len(options.seeds)])


if __name__ == '__main__':
    sys.exit(not main())
