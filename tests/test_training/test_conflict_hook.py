"""The meter of gradient conflicts: cosines by hand, an unchanged training, and its file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from mmengine.hooks import Hook
from mmengine.runner import Runner
from torch import Tensor

from tests.families import FAMILIES
from tests.supernets import SANDWICH, UNIFORM, losses, model_config, supernet_config, train
from tests.test_integration.test_any_task import config as task_config
from tests.test_integration.test_any_task import streets  # noqa: F401  (a fixture)
from tests.test_training.test_loop import SHARED, assert_equal_states
from vitnas_core.backbones import elastic_backbone
from vitnas_core.errors import VitnasError
from vitnas_core.training.hooks import ConflictMeterHook, read_conflicts
from vitnas_core.training.samplers import SandwichSampler

METER = dict(type='vitnas.ConflictMeterHook', interval=3)
DISTILLED = dict(type='vitnas.Sandwich', distill=dict(type='vitnas.KLDivergence'))
PROJECTED = {**DISTILLED, 'conflict': dict(type='vitnas.GradientProjection')}


class ByHand(Hook):
    """Before the first step: the gradients of each architecture as torch's own backward gives them."""

    priority = 'LOWEST'

    def before_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None) -> None:
        if runner.iter:
            return
        model = runner.model
        archs = SandwichSampler(2).sample(elastic_backbone(model).space, np.random.default_rng([3, 0, 2]), 0.0)
        data = model.data_preprocessor(data_batch, True)
        found = [self.gradients(model, data, arch) for arch in archs]
        self.cosines: dict[str, float] = {}
        named = dict(model.named_parameters())
        sums = {name: sum(one.get(name, torch.zeros_like(p)) for one in found[1:]) for name, p in named.items()}
        whole = {name: found[0].get(name, torch.zeros_like(p)) for name, p in named.items()}
        for layer in dict.fromkeys(name.rpartition('.')[0] for name in named):
            names = [name for name in named if name.rpartition('.')[0] == layer]
            x, y = (torch.cat([side[name].flatten() for name in names]) for side in (whole, sums))
            if x.norm() * y.norm() > 0:
                self.cosines[layer] = float(x @ y / (x.norm() * y.norm()))

    def gradients(self, model: Any, data: dict, arch: Any) -> dict[str, Tensor]:
        elastic_backbone(model).set_arch(arch)
        model.parse_losses(model(**data, mode='loss'))[0].backward()
        found = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
        model.zero_grad()
        return found


@pytest.mark.parametrize('name', FAMILIES)
@pytest.mark.parametrize('sampler', [SANDWICH, UNIFORM], ids=['sandwich', 'uniform'])
def test_cosines_by_hand(tmp_path: Path, name: str, sampler: dict) -> None:
    model = model_config(FAMILIES[name], drop_path=0.0, mixup=False)
    config = supernet_config(tmp_path, sampler, augment=False, model=model, max_iters=2)
    config.custom_hooks = [METER]
    runner, hand = Runner.from_cfg(config), ByHand()
    runner.register_hook(hand)
    runner.train()
    rows = read_conflicts(tmp_path / 'conflicts.csv')
    assert {row[0] for row in rows} == {0}
    assert [row[1] for row in rows] == list(hand.cosines)
    np.testing.assert_allclose([row[2] for row in rows], list(hand.cosines.values()), atol=2e-4)
    ratio = runner.message_hub.get_scalar('train/conflict_ratio').current()
    assert ratio == pytest.approx(np.mean([row[2] < 0 for row in rows]))


CASES: dict[str, dict[str, Any]] = {
    'single path': dict(sampler=UNIFORM),
    'shared': SHARED,
    'distilled, accumulated': dict(sampler=SANDWICH, rule=DISTILLED, optim=dict(accumulative_counts=3)),
    'projected, accumulated': dict(sampler=SANDWICH, rule=PROJECTED, optim=dict(accumulative_counts=3)),
    'bfloat16': dict(sampler=SANDWICH, rule=PROJECTED, optim=dict(type='vitnas.BFloat16OptimWrapper')),
    'batch norms': dict(sampler=SANDWICH, rule=DISTILLED, model=model_config(FAMILIES['vit_res'])),
    'many batch norms': dict(sampler=SANDWICH, rule=PROJECTED, model=model_config(FAMILIES['nasvit'])),
}


@pytest.mark.parametrize('case', CASES)
def test_the_training_is_the_same_with_it(tmp_path: Path, case: str) -> None:
    """With all that is random, in the middle of accumulations, with running statistics: equal bit for bit."""
    seen = []
    for folder, hooks in (('without', []), ('with', [METER])):
        config = supernet_config(tmp_path / folder, checkpoint=dict(interval=8, by_epoch=False), **CASES[case])
        config.custom_hooks = hooks
        runner = train(config)
        seen.append(losses(runner))
        assert (tmp_path / folder / 'conflicts.csv').is_file() == bool(hooks)
    assert seen[0] == seen[1]
    for step in (8, 16):
        states = [torch.load(tmp_path / f / f'iter_{step}.pth', weights_only=True) for f in ('without', 'with')]
        for part in ('state_dict', 'optimizer', 'gradients', 'gradients_aside'):
            assert_equal_states(states[1].get(part), states[0].get(part), part)
    rows = read_conflicts(tmp_path / 'with' / 'conflicts.csv')
    assert sorted({row[0] for row in rows}) == [0, 3, 6, 9, 12, 15]
    assert all(-1.001 <= row[2] <= 1.001 for row in rows)


def test_the_file_of_a_resumed_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed in the middle of a line, resumed from an earlier checkpoint: the file of a training without a break."""

    def config(resume: bool) -> Any:
        made = supernet_config(
            tmp_path, SANDWICH, rule=PROJECTED, checkpoint=dict(interval=4, by_epoch=False), max_iters=16
        )
        made.custom_hooks, made.resume, made.log_level = [METER], resume, 'INFO'
        return made

    train(config(False))
    path = tmp_path / 'conflicts.csv'
    whole = path.read_text()
    path.write_text(whole[:-8])
    (tmp_path / 'last_checkpoint').write_text(str(tmp_path / 'iter_8.pth'))
    said: list[str] = []
    runner = Runner.from_cfg(config(True))
    monkeypatch.setattr(runner.logger, 'info', said.append)
    runner.train()
    assert path.read_text() == whole
    (line,) = [line for line in said if line.startswith('Conflicts: ')]
    rows = read_conflicts(path)
    share = np.mean([row[2] < 0 for row in rows])
    layers = len({row[1] for row in rows})
    assert share > 0
    assert line.startswith(f'Conflicts: {share:.1%} of {layers} layers in 6 measurements; most in backbone.')
    train(config(False))  # a new training begins a new file
    assert path.read_text() == whole


def test_what_does_not_do(tmp_path: Path) -> None:
    with pytest.raises(VitnasError, match='`interval` should be a whole number of at least 1, but got 0'):
        ConflictMeterHook(interval=0)
    config = supernet_config(tmp_path, UNIFORM)
    config.train_cfg, config.custom_hooks = dict(by_epoch=True, max_epochs=1), [METER]
    with pytest.raises(VitnasError, match='measures with the losses of a training rule: use train_cfg='):
        train(config)


@pytest.mark.parametrize(
    ('text', 'words'),
    [
        (None, 'cannot be read as a table of conflicts: .*No such file'),
        ('', 'should have the columns iter, layer, cosine'),
        ('iter,layer\n', 'should have the columns'),
        ('iter,layer,cosine\n0,a,x\n', r'csv:2 should hold iter, layer, cosine, but got'),
        ('iter,layer,cosine\n0,a,1\n0\n', r'csv:3 should hold'),
    ],
)
def test_malformed_files(tmp_path: Path, text: str | None, words: str) -> None:
    if text is not None:
        (tmp_path / 'conflicts.csv').write_text(text)
    with pytest.raises(VitnasError, match=words):
        read_conflicts(tmp_path / 'conflicts.csv')


def test_a_segmentor(tmp_path: Path, streets: Path) -> None:  # noqa: F811
    """Neither the meter nor the projection knows the task."""
    states = []
    for hooks in ([], [METER]):
        cfg = task_config(tmp_path / f'{len(hooks)}', streets, FAMILIES['s3'], workers=0)
        cfg.train_cfg.rule = dict(type='vitnas.Sandwich', conflict=dict(type='vitnas.GradientProjection'))
        cfg.custom_hooks = hooks
        train(cfg)
        states.append(torch.load(tmp_path / f'{len(hooks)}' / 'iter_8.pth', weights_only=True)['state_dict'])
    assert_equal_states(dict(states[1]), dict(states[0]))
    layers = {row[1] for row in read_conflicts(tmp_path / '1' / 'conflicts.csv')}
    assert 'decode_head.conv_seg' in layers and 'backbone.stages.0.blocks.0.attn.qkv' in layers
