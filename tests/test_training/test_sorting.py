"""Sorting of channels during training: the optimizer state follows, and unsortable networks are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from mmengine.hooks import Hook
from mmengine.runner import Runner

from tests.supernets import UNIFORM, supernet_config, train
from vitnas_core.backbones import elastic_backbone
from vitnas_core.elastic import importance_orders
from vitnas_core.errors import VitnasError
from vitnas_core.training.hooks import SortChannelsHook


class Watch(Hook):
    """At the start of each step: whether channels are sorted, and each hidden unit's weight with its memory."""

    priority = 'VERY_LOW'  # behind the sorting

    def __init__(self) -> None:
        self.sorted: list[bool] = []
        self.pairs: list[set[tuple[float, float]]] = []

    def before_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None) -> None:
        backbone = elastic_backbone(runner.model)
        changes = importance_orders(backbone)
        self.sorted.append(all(c.order.tolist() == list(range(len(c.order))) for c in changes))
        self.pairs.append(memory(runner))

    def after_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
        self.pairs.append(memory(runner))


def memory(runner: Runner) -> set[tuple[float, float]]:
    """The first weight of each hidden unit of a block, and its first moment."""
    weight = elastic_backbone(runner.model).stage_blocks()[0][0].fc1.weight
    state = runner.optim_wrapper.optimizer.state.get(weight, {})
    moments = state.get('exp_avg', torch.zeros_like(weight))
    return set(zip(weight[:, 0].tolist(), moments[:, 0].tolist()))


def test_sorted_at_the_start_of_epochs_with_what_the_optimizer_keeps(tmp_path: Path) -> None:
    config = supernet_config(tmp_path, UNIFORM, augment=False, max_epochs=4)
    config.custom_hooks = [dict(type='vitnas.SortChannelsHook', until=0.5)]
    watch = Watch()
    runner = Runner.from_cfg(config)
    runner.register_hook(watch)
    runner.train()
    assert [watch.sorted[i] for i in (0, 8, 16)] == [True] * 3  # epochs 0, 1 and 2 of 4
    assert not watch.sorted[24] and not watch.sorted[15]
    for i in range(1, 32):  # the step before left what this one finds, in whatever order
        assert watch.pairs[2 * i] == watch.pairs[2 * i - 1]


def test_accumulated_gradients_move_along(tmp_path: Path) -> None:
    """Three steps an update, eight an epoch: gradients of two steps are waiting when the second epoch begins."""
    config = supernet_config(tmp_path, UNIFORM, augment=False, max_epochs=2, optim=dict(accumulative_counts=3))
    config.custom_hooks = [dict(type='vitnas.SortChannelsHook', until=1.0)]
    seen: list[list[tuple[float, float]]] = []

    class Pairs(Hook):
        """Each hidden unit's first weight and its waiting gradient, around the sorting."""

        def before_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None) -> None:
            weight = elastic_backbone(runner.model).stage_blocks()[0][0].fc1.weight
            if runner.epoch == 1 and batch_idx == 0:
                seen.append(list(zip(weight[:, 0].tolist(), weight.grad[:, 0].tolist())))

    runner = Runner.from_cfg(config)
    for priority in ('VERY_HIGH', 'VERY_LOW'):
        runner.register_hook(Pairs(), priority=priority)
    runner.train()
    before, after = seen
    assert before != after and set(before) == set(after)
    assert any(gradient for _, gradient in before)


@pytest.mark.parametrize(
    ('length', 'hooks', 'words'),
    [
        (dict(max_iters=4), [], 'sorts at the start of epochs: give the loop `max_epochs` above 1'),
        (dict(max_epochs=2), [dict(type='EMAHook')], 'of which EMAHook keeps averages: use one of them'),
    ],
    ids=['iterations', 'averages'],
)
def test_what_cannot_be_sorted(tmp_path: Path, length: dict, hooks: list, words: str) -> None:
    config = supernet_config(tmp_path, UNIFORM, **length)
    config.custom_hooks = [dict(type='vitnas.SortChannelsHook'), *hooks]
    with pytest.raises(VitnasError, match=words):
        train(config)


def test_mistakes() -> None:
    with pytest.raises(VitnasError, match='`until` should be from 0 to 1, but got 2'):
        SortChannelsHook(until=2)
