"""FocusFormer's sampler on a known truth: the small version of projects/studies/sampler_truth.py."""

import numpy as np
import pytest

from projects.studies.sampler_truth import GAIN, WITHIN, Truth, judge, toy_space, train
from vitnas_core.training.samplers import FocusSampler

SMALL_TOY = toy_space(depths=(3, 4))


@pytest.fixture(scope='module')
def trained() -> FocusSampler:
    """A space of 960 architectures."""
    settings = dict(beta=0.5, num_archs=32, baseline=0.9, entropy=0.005, optimizer=dict(type='AdamW', lr=4e-3))
    return train(SMALL_TOY, 0, iterations=600, **settings)


def test_a_table_with_a_known_truth(trained: FocusSampler) -> None:
    for row in judge(trained, Truth(SMALL_TOY), num_budgets=5):
        assert row['gain'] >= GAIN and abs(row['miss']) <= WITHIN, row


def test_interpolated_budgets_lie_between_their_neighbours(trained: FocusSampler) -> None:
    truth = Truth(SMALL_TOY)
    inside = 0
    for low, high in zip(trained.grid[1:], trained.grid[2:]):
        ends = [truth.probabilities(trained, budget) for budget in (low, high)]
        middle = truth.probabilities(trained, (low + high) / 2)
        costs = [float(probs @ truth.macs) for probs in (ends[0], middle, ends[1])]
        inside += costs[0] <= costs[1] <= costs[2]
        apart = [np.abs(a - b).sum() / 2 for a, b in ((ends[0], middle), (middle, ends[1]), (ends[0], ends[1]))]
        assert max(apart[:2]) < apart[2] + 0.05, (low, apart)  # total variation
    assert inside >= 0.9 * (len(trained.grid) - 2)
