"""Batch-norm statistics of one architecture: exact, of its own channels, and kept by extracted networks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from mmengine.runner import Runner
from torch import Tensor, nn

from tests.families import FAMILIES
from tests.supernets import model_config, supernet_config
from vitnas_core.elastic import ElasticBatchNorm2d
from vitnas_core.errors import VitnasError
from vitnas_core.evaluation import batch_norms, recalibrate
from vitnas_core.training.hooks import RecalibrateHook

FAMILY = FAMILIES['nasvit']


def parts(count: int = 5) -> list[Tensor]:
    """Batches of different sizes and far from zero, where naive sums of squares fail."""
    random = torch.Generator().manual_seed(0)
    return [100 + i + torch.randn(2 + i, 3, 32, 32, generator=random) for i in range(count)]


def randomised() -> nn.Module:
    torch.manual_seed(0)
    model = FAMILY.elastic()
    for parameter in model.parameters():
        nn.init.normal_(parameter, 0.5 if parameter.ndim == 1 else 0.0, 0.3)
    return model.eval()


@pytest.mark.parametrize('arch', ['largest', 'smallest', 'random'])
def test_equals_a_float64_reference(arch: str, rng: np.random.Generator) -> None:
    """Means and variances of everything that reached a norm, from all batches at once."""
    model = randomised()
    model.set_arch(FAMILY.space.sample(rng) if arch == 'random' else getattr(FAMILY.space, arch)())
    inputs: dict[str, list[Tensor]] = {}
    hooks = [
        norm.register_forward_pre_hook(lambda m, args, name=name: inputs.setdefault(name, []).append(args[0].clone()))
        for name, norm in batch_norms(model).items()
    ]
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    done = recalibrate(model, model, parts())
    for hook in hooks:
        hook.remove()
    assert done.keys() == inputs.keys() and len(inputs) > 5
    for name, norm in done.items():
        seen = torch.cat([x.double().transpose(0, 1).flatten(1) for x in inputs[name]], 1)
        width = len(seen)
        mean, var = seen.mean(1), seen.var(1)
        for found, expected, scale in (
            (norm.running_mean, mean, torch.maximum(mean.abs(), var.sqrt())),
            (norm.running_var, var, var),
        ):
            assert ((found[:width].double() - expected).abs() <= 1e-6 * scale).all(), name
        assert torch.equal(norm.running_mean[width:], before[f'{name}.running_mean'][width:])
    changed = [n for n, t in model.state_dict().items() if not torch.equal(t, before[n])]
    assert changed and all(name.endswith(('running_mean', 'running_var')) for name in changed)
    assert not any(norm._forward_pre_hooks for norm in batch_norms(model).values())


def test_each_batch_is_normalised_by_itself() -> None:
    """As in training: the pass gives what a training pass gives, and one batch alone is then normalised exactly."""
    model, (x, *_) = randomised(), parts()
    seen: list[Tensor] = []
    recalibrate(model, lambda batch: seen.append(model(batch)[0]), [x])
    expected = model.train()(x)[0]
    torch.testing.assert_close(seen[0], expected, rtol=1e-4, atol=1e-4)


def test_averages_as_published() -> None:
    norm, (a, b, *_) = ElasticBatchNorm2d(3), parts()
    recalibrate(norm, norm, [a, b], average=True)
    for found, expected in (
        (norm.running_mean, (a.mean((0, 2, 3)) + b.mean((0, 2, 3))) / 2),
        (norm.running_var, (a.var((0, 2, 3)) + b.var((0, 2, 3))) / 2),
    ):
        torch.testing.assert_close(found, expected)


def test_any_model_frozen_norms_and_modes() -> None:
    """Not only ours: norms of a neck or a head too, and what is frozen stays."""

    class Frozen(nn.Sequential):
        def train(self, mode: bool = True) -> Frozen:
            super().train(mode)
            self[0].eval()
            return self

    model = Frozen(nn.BatchNorm2d(3), nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.Dropout(0.5)).train()
    modes = [module.training for module in model.modules()]
    assert list(recalibrate(model, model, parts())) == ['2']
    assert [module.training for module in model.modules()] == modes
    assert not model[0].running_mean.any() and model[2].running_mean.all()
    assert model[2].num_batches_tracked == 0
    assert recalibrate(nn.Sequential(nn.Conv2d(3, 4, 1)), lambda x: pytest.fail('nothing to do'), parts()) == {}


def test_a_pass_that_fails_leaves_no_hook() -> None:
    model = nn.Sequential(nn.BatchNorm2d(3)).train()

    def fails(batch: Tensor) -> None:
        raise MemoryError

    with pytest.raises(MemoryError):
        recalibrate(model, fails, parts())
    assert not model[0]._forward_pre_hooks and model[0].training


def test_extracted_networks_carry_them() -> None:
    model, x = randomised(), parts()[0]
    arch = FAMILY.space.smallest()
    model.set_arch(arch)
    recalibrate(model, model, parts())
    fixed = model.extract(arch)
    assert torch.equal(model(x)[0][:, : fixed.out_channels()[0]], fixed(x)[0])
    alone = model.extract(arch)
    recalibrate(alone, alone, parts())
    for name, buffer in alone.named_buffers():
        torch.testing.assert_close(buffer, dict(fixed.named_buffers())[name], rtol=1e-5, atol=1e-5)


def train(folder: Path, hooks: list[dict[str, Any]]) -> Runner:
    cfg = supernet_config(folder, model=model_config(FAMILY, drop_path=0.0), max_epochs=1)
    cfg.custom_hooks = hooks
    cfg.randomness = dict(seed=0)
    runner = Runner.from_cfg(cfg)
    runner.train()
    return runner


def test_before_validations(tmp_path: Path) -> None:
    """The hook changes what is validated, for every reported architecture, and nothing of the training."""
    loader = supernet_config(tmp_path / 'x', model=model_config(FAMILY)).val_dataloader.to_dict()
    report = dict(type='vitnas.SupernetReportHook', interval=1, num_random=1)
    hook = dict(type='vitnas.RecalibrateHook', dataloader=loader, num_batches=2)
    plain, recalibrated = train(tmp_path / 'a', [report]), train(tmp_path / 'b', [report, hook])
    for (name, a), b in zip(plain.model.named_parameters(), recalibrated.model.parameters()):
        assert torch.equal(a, b), name
    texts = [(tmp_path / name / 'supernet_report.csv').read_text() for name in 'ab']
    assert texts[0].count('\n') == texts[1].count('\n') and texts[0] != texts[1]


@pytest.mark.parametrize('average', [False, True])
def test_the_hook_averages_as_published_where_asked(tmp_path: Path, average: bool) -> None:
    cfg = supernet_config(tmp_path, model=model_config(FAMILY, drop_path=0.0))
    runner, loader = Runner.from_cfg(cfg), cfg.val_dataloader.to_dict()
    hook = RecalibrateHook({**loader, 'batch_size': 3}, num_batches=2, average=average)
    hook.before_val_epoch(runner)
    found = {name: norm.running_var.clone() for name, norm in batch_norms(runner.model).items()}
    for way in (average, not average):
        norms = recalibrate(runner.model, runner.model.val_step, hook._batches.first(2), average=way)
        assert all(torch.equal(norm.running_var, found[name]) for name, norm in norms.items()) == (way == average)


def test_a_model_without_batch_norms_is_refused(tmp_path: Path) -> None:
    loader = supernet_config(tmp_path / 'x').val_dataloader.to_dict()
    cfg = supernet_config(tmp_path / 'a', max_epochs=1)
    cfg.custom_hooks = [dict(type='vitnas.RecalibrateHook', dataloader=loader, num_batches=1)]
    with pytest.raises(VitnasError, match='RecalibrateHook is for models with batch norms'):
        Runner.from_cfg(cfg).train()
    with pytest.raises(VitnasError, match='`num_batches` should be a whole number of at least 1'):
        cfg.custom_hooks[0].num_batches = 0
        Runner.from_cfg(cfg)
