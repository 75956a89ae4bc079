"""The private parts of mmengine that vitnas uses exist and behave as expected."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from mmengine.evaluator import BaseMetric
from mmengine.hooks import EMAHook
from mmengine.optim import OptimWrapper
from mmengine.runner import Runner

from tests.supernets import UNIFORM, supernet_config
from vitnas_core.integration import metrics, runner, steps


@pytest.fixture
def built(tmp_path: Path) -> Runner:
    cfg = supernet_config(tmp_path, UNIFORM, max_epochs=1)
    cfg.custom_hooks = [dict(type='EMAHook', momentum=0.5)]
    return Runner.from_cfg(cfg)


def test_runners_have_them(built: Runner) -> None:
    for name in ('_load_from', '_resume', '_has_loaded', '_train_loop', '_test_dataloader', '_randomness_cfg'):
        assert hasattr(built, name), name
    for name in ('_ema_started', '_swap_ema_parameters'):
        assert hasattr(EMAHook, name), name


def test_what_is_loaded(built: Runner) -> None:
    assert runner.load_from(built) is None and not runner.is_resuming(built) and not runner.has_loaded(built)
    built._load_from, built._resume = 'supernet.pth', True
    assert runner.load_from(built) == 'supernet.pth' and runner.is_resuming(built)
    runner.do_not_resume(built)
    assert not runner.is_resuming(built)


def test_what_is_not_built_yet(built: Runner) -> None:
    assert not runner.train_loop_is_built(built)
    built.train_loop  # noqa: B018  (it is built here)
    assert runner.train_loop_is_built(built)
    assert runner.test_dataloader(built) is None


def test_seeds(built: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    assert runner.given_seed(built) == runner.run_seed(built) == 3
    monkeypatch.setattr(runner, 'get_rank', lambda: 3)
    built._randomness_cfg = dict(seed=3, diff_rank_seed=True)
    built._seed = 6  # what mmengine gives rank 3
    assert runner.run_seed(built) == 3
    built._randomness_cfg = {}
    assert runner.given_seed(built) == 0


def test_averaged_weights(built: Runner) -> None:
    built.call_hook('before_run')
    head = next(built.model.head.parameters())
    before = head.detach().clone()
    with torch.no_grad():
        head += 1
    with runner.averaged_weights(built):
        assert torch.equal(head, before)
    assert torch.equal(head, before + 1)


def test_losses_of_a_step_count_once() -> None:
    layer = torch.nn.Linear(2, 1)
    optim = OptimWrapper(torch.optim.SGD(layer.parameters(), lr=0.1), accumulative_counts=2)
    optim.initialize_count_status(layer, 0, 4)
    for last in (False, False, True):
        steps.add_gradients(optim, layer(torch.ones(1, 2)).sum(), last)
    assert optim.inner_count == 1 and layer.bias.grad.item() == 1.5  # three of them, each divided by two
    assert steps.progress(optim) == 0.0
    steps.add_gradients(optim, layer(torch.ones(1, 2)).sum(), True)
    assert steps.progress(optim) == 0.25
    assert steps.progress(OptimWrapper(torch.optim.SGD(layer.parameters(), lr=0.1))) is None


class Mean(BaseMetric):
    def process(self, data_batch: Any, data_samples: Any) -> None:
        self.results += data_samples

    def compute_metrics(self, results: list) -> dict[str, float]:
        return {'mean': sum(float(value) for value in results) / len(results)}


def test_values_of_one_process() -> None:
    metric = Mean()
    metric.process(None, [torch.tensor(1.0), torch.tensor(3.0)])
    assert metrics.own_values(metric) == {'mean': 2.0}
    assert metrics.own_values(metric, metric.results[1:]) == {'mean': 3.0}
    assert metrics.annotated_images(metric) is None
