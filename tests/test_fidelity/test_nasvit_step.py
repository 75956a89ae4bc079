"""A whole training step of NASViT against the published code: losses, both gradients, and their projection."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from mmengine.optim import OptimWrapper
from mmengine.registry import MODELS
from torch import Tensor, nn

from tests.reference import read
from tests.test_fidelity.test_nasvit import DATA, as_arch, images, small_space, weights
from vitnas_core.families.nasvit.weights import to_official
from vitnas_core.training import GradientProjection, Teacher
from vitnas_core.training.projection import ASIDE
from vitnas_core.training.rules import Sandwich

ALL: list[dict[str, Any]] = read('nasvit', 'sandwich_step')['steps']
STEPS = [step for step in ALL if step['cleared_gradients'] == 'zeros']
"""With gradients that are absent instead of zeros the published code doubles some, which is not imitated."""

OTHER_LAYOUT = re.compile(r'\.attn\.[qkv]\.|\.rescale_')
"""Tensors that are one with others or several here, so that a comparison of tensors is not the published one: queries,
keys and values are rows of one weight, and each vector of switchable scaling is a parameter of its own."""


class Given(nn.Module):
    """A teacher whose logits are in the file."""

    def __init__(self, logits: list[list[float]]) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.tensor(logits))

    def forward(self, inputs: Tensor, mode: str) -> Tensor:
        return self.logits


class Kept(OptimWrapper):
    """Leaves the gradients to be looked at."""

    def step(self, **kwargs: Any) -> None:
        pass

    def zero_grad(self, **kwargs: Any) -> None:
        pass


def classifier() -> Any:
    classes, width = weights()['head.fc.weight'].shape
    model = MODELS.build(
        dict(
            type='mmpretrain.ImageClassifier',
            backbone=dict(type='vitnas.NASViT', space=small_space().to_dict(), official=True),
            neck=dict(type='mmpretrain.GlobalAveragePooling'),
            head=dict(type='mmpretrain.LinearClsHead', num_classes=classes, in_channels=width),
            data_preprocessor=dict(type='mmpretrain.ClsDataPreprocessor', num_classes=classes),
        )
    )
    model.load_state_dict(weights())
    return model.train()


def official(model: nn.Module, attribute: str) -> dict[str, Tensor]:
    """Gradients in the published layout, with zeros for what has none."""
    found = {name: getattr(p, attribute, None) for name, p in model.named_parameters()}
    state = {name: torch.zeros_like(tensor) for name, tensor in weights().items()}
    zeros = to_official(state, small_space())
    state |= {name: gradient.detach() for name, gradient in found.items() if gradient is not None}
    return {name: tensor - zeros[name] for name, tensor in to_official(state, small_space()).items()}


def rule_of(step: dict[str, Any]) -> Sandwich:
    options = dict(cap=2.0, eps=1e-6, clip_subnets=step['clip'], start=0.0 if step['projection_enabled'] else 1.0)
    rule = Sandwich(
        distill=dict(type='vitnas.AdaptiveAlphaDivergence'),
        conflict=dict(type='vitnas.GradientProjection', **options),
    )
    rule.teacher = Teacher.__new__(Teacher)
    nn.Module.__init__(rule.teacher)
    rule.teacher.models, rule.teacher.sharpness = nn.ModuleList(map(Given, step['teacher_logits'])), 5.0
    return rule


@pytest.mark.parametrize('step', STEPS, ids=lambda step: 'projected' if step['projection_enabled'] else 'added')
def test_step(step: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    from mmpretrain.structures import DataSample

    model, seen = classifier(), {}
    combine = GradientProjection.combine

    def noted(self: GradientProjection, *args: Any) -> None:
        seen.update(sup=official(model, ASIDE), sub=official(model, 'grad'))
        combine(self, *args)

    monkeypatch.setattr(GradientProjection, 'combine', noted)
    archs = [as_arch(arch, DATA['settings']['search_space']['stages']) for arch in step['archs_in_order']]
    batch = dict(inputs=images(), data_samples=[DataSample().set_gt_label(0) for _ in images()])
    optim = Kept(torch.optim.SGD(model.parameters(), lr=1.0))
    optim.initialize_count_status(model, 0, 10)
    rule = rule_of(step)
    rule.bind(model.backbone)
    logs = rule.step(model, batch, archs, optim)
    for i, loss in enumerate(step['losses_in_order']):
        assert logs[f'loss_arch{i}'].item() == pytest.approx(loss, rel=1e-4, abs=1e-5)
    total = torch.cat([gradient.flatten() for gradient in seen['sub'].values()]).norm().item()
    assert total == pytest.approx(step['total_norm_sub_before_clip'], rel=1e-4)
    seen['final'] = official(model, 'grad')
    compared = 0
    for name, expected in step['per_parameter'].items():
        for kind, gradients in seen.items():
            if kind == 'final' and step['projection_enabled'] and OTHER_LAYOUT.search(name):
                continue
            norm = gradients[name].double().norm().item() if name in gradients else 0.0
            assert norm == pytest.approx(expected[kind] or 0.0, rel=1e-3, abs=1e-6), (name, kind)
            compared += bool(norm)
    assert compared
    scale = min(1.0, step['clip'] / total)
    for name in step['per_parameter'].keys() & seen['sup'].keys():  # all of them in the published layout
        both, added = projected(seen['sup'][name], seen['sub'][name] * scale)
        norm = (both if step['projection_enabled'] else added).norm().item()
        assert norm == pytest.approx(step['per_parameter'][name]['final'] or 0.0, rel=1e-3, abs=1e-6), name


def projected(supernet: Tensor, subnets: Tensor) -> tuple[Tensor, Tensor]:
    """The published combination of two tensors of its own layout, and their sum."""
    factor = (-(supernet * subnets).sum() / (1e-6 + (subnets * subnets).sum())).clamp(0, 2)
    return (1 + factor) * subnets + supernet, subnets + supernet
