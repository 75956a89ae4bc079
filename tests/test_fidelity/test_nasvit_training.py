"""NASViT's training against the published code: distillation, projection of gradients, learning rates."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from mmengine.optim import OptimWrapper
from mmengine.registry import PARAM_SCHEDULERS
from torch import nn

from tests.config_files import parsed
from tests.reference import read
from vitnas_core.training import AdaptiveAlphaDivergence, GradientProjection

DISTILLATIONS: list[dict[str, Any]] = read('nasvit', 'kd')['cases']
PROJECTIONS: list[dict[str, Any]] = read('nasvit', 'projection')['cases']
SCHEDULE: dict[str, Any] = read('nasvit', 'lr_schedule')


def divergence(case: dict[str, Any]) -> AdaptiveAlphaDivergence:
    return AdaptiveAlphaDivergence(case['alpha_min'], case['alpha_max'], case['clip'])


@pytest.mark.parametrize('case', DISTILLATIONS, ids=lambda case: case['name'])
def test_distillation(case: dict[str, Any]) -> None:
    student = torch.tensor(case['student_logits'], requires_grad=True)
    teacher = torch.tensor(case['teacher_logits'])
    loss = divergence(case)(student, teacher)
    loss.backward()
    assert loss.item() == pytest.approx(case['loss_mean'], rel=1e-5)
    torch.testing.assert_close(student.grad, torch.tensor(case['grad_student_of_mean']), rtol=1e-4, atol=1e-6)
    for i, expected in enumerate(case['loss_per_sample']):
        alone = divergence(case)(student[i : i + 1], teacher[i : i + 1])
        assert alone.item() == pytest.approx(expected, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize('case', DISTILLATIONS, ids=lambda case: case['name'])
def test_parts_of_the_distillation(case: dict[str, Any]) -> None:
    """Each divergence by itself, and its weights."""
    loss, log_q = divergence(case), torch.tensor(case['student_logits']).log_softmax(-1)
    log_p = torch.tensor(case['teacher_logits']).log_softmax(-1)
    for name, alpha in (('low', case['alpha_min']), ('high', case['alpha_max'])):
        found, weights = loss._divergence(log_p, log_q, alpha)
        torch.testing.assert_close(found, torch.tensor(case[f'divergence_{name}_per_sample']), rtol=1e-4, atol=1e-5)
        surrogate = -(weights * log_q).sum(-1)
        torch.testing.assert_close(surrogate, torch.tensor(case[f'surrogate_{name}_per_sample']), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize('case', PROJECTIONS, ids=lambda case: f'{case["name"]}-{case["projection_enabled"]}')
def test_projection(case: dict[str, Any]) -> None:
    """With the options of the published code, but for its clip, which the file leaves out."""
    supernet, subnets, expected = (
        [None if values is None else torch.tensor(values) for values in case[name]]
        for name in ('supernet_grads', 'subnet_grads', 'result')
    )
    for i, gradient in enumerate(supernet):
        if subnets[i] is None:  # on a newer torch than its own the code takes one tensor for both: not imitated
            torch.testing.assert_close(expected[i], 2 * gradient)
            expected[i] = gradient
    shapes = [(a if a is not None else b).shape for a, b in zip(supernet, subnets)]
    parameters = [nn.Parameter(torch.zeros(shape)) for shape in shapes]
    optim_wrapper = OptimWrapper(torch.optim.SGD(parameters, lr=1.0))
    optim_wrapper.initialize_count_status(nn.Identity(), 0, 400)
    projection = GradientProjection(cap=2.0, eps=1e-6, start=0.0 if case['projection_enabled'] else 101 / 400)
    for gradients in (supernet, subnets):
        for parameter, gradient in zip(parameters, gradients):
            parameter.grad = None if gradient is None else gradient.clone()
        if gradients is supernet:
            projection.set_aside(nn.Identity(), optim_wrapper)
    optim_wrapper._inner_count = 1  # as after the backward pass of the first step
    projection.combine(optim_wrapper)
    for parameter, gradient in zip(parameters, expected):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-5, atol=1e-8)


def test_learning_rates() -> None:
    """Of the config that trains as published, an iteration earlier: the code sets a rate behind the update.

    The warm-up here ends with its last iteration, there with the next, which is one iteration of 50 in the file.
    """
    cfg, length = parsed('nasvit_supernet_8xb64-400e_imagenet'), re.search(r'x (\d+) iterations', SCHEDULE['about'])
    assert length
    epoch, warm_up = int(length[1]), 5 * int(length[1])
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], cfg.optim_wrapper.optimizer.lr)
    given = dict(optimizer=optimizer, epoch_length=epoch)
    schedulers = [PARAM_SCHEDULERS.build(dict(one), default_args=given) for one in cfg.param_scheduler]
    rates = []
    for _ in range(cfg.train_cfg.max_epochs * epoch):
        rates.append(optimizer.param_groups[0]['lr'])
        optimizer.step()
        for scheduler in schedulers:
            scheduler.step()
    for iteration, rate in ((int(number), rate) for number, rate in SCHEDULE['lr_at_iteration'].items()):
        tolerance = 1e-5 if iteration > warm_up else 1 / (warm_up - 1)
        assert rates[max(0, iteration - 1)] == pytest.approx(rate, rel=tolerance), iteration


def test_recalibration_takes_as_many_batches_as_published() -> None:
    cfg = parsed('nasvit_supernet_8xb64-400e_imagenet')
    (hook,) = (hook for hook in cfg.custom_hooks if hook.type == 'vitnas.RecalibrateHook')
    assert hook.average and hook.num_batches == 64
    assert hook.num_batches * hook.dataloader.batch_size <= 1000 * hook.dataloader.dataset.per_class
