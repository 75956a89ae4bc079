"""The supernet loop: lengths, mixed precision, averages, and a resume that is exact to the bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from mmengine.dataset import Compose
from mmengine.hooks import Hook
from mmengine.model import convert_sync_batchnorm
from mmengine.runner import Runner
from torch import nn

from tests.families import FAMILIES
from tests.supernets import SANDWICH, UNIFORM, losses, model_config, supernet_config, train, watch
from vitnas_core.backbones import elastic_backbone
from vitnas_core.errors import VitnasError
from vitnas_core.training import BFloat16OptimWrapper

SHARED: dict[str, Any] = dict(
    sampler=dict(type='vitnas.MultiArchSampler', num_archs=3), rule=dict(type='vitnas.MultiArch')
)


class Recorder(Hook):
    """What each step saw: the architectures and the sum of its images."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, float]] = []
        self.archs: list[str] = []

    def before_train(self, runner: Runner) -> None:
        watch(runner, self.archs)

    def after_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
        pixels = float(sum(image.double().sum() for image in data_batch['inputs']))
        self.steps.append((self.archs[-1], pixels))


def recorded(config: Any, resume: bool = False) -> tuple[Runner, Recorder]:
    config.resume = resume
    runner, recorder = Runner.from_cfg(config), Recorder()
    runner.register_hook(recorder)
    runner.train()
    return runner, recorder


def assert_equal_states(a: Any, b: Any, path: str = '') -> None:
    if isinstance(a, torch.Tensor):
        assert torch.equal(a, b), path
    elif isinstance(a, dict):
        assert a.keys() == b.keys(), path
        for key in a:
            assert_equal_states(a[key], b[key], f'{path}.{key}')
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b), path
        for i, (x, y) in enumerate(zip(a, b)):
            assert_equal_states(x, y, f'{path}[{i}]')
    else:
        assert a == b, path


@pytest.mark.parametrize('name', FAMILIES)
@pytest.mark.parametrize('kind', ['uniform', 'sandwich', 'shared'])
def test_every_family_trains_with_every_sampler(tmp_path: Path, name: str, kind: str) -> None:
    settings = dict(uniform=dict(sampler=UNIFORM), sandwich=dict(sampler=SANDWICH), shared=SHARED)[kind]
    config = supernet_config(tmp_path, model=model_config(FAMILIES[name]), **settings)
    if kind == 'shared' and name.startswith('nasvit'):
        with pytest.raises(VitnasError, match='a batch norm takes its mean over samples of different architectures'):
            recorded(config)
        return
    runner, recorder = recorded(config)
    assert (runner.epoch, runner.iter) == (2, 16)
    assert len({arch for arch, _ in recorder.steps}) > 5
    assert np.isfinite(losses(runner)).all()


def test_a_supernet_learns(tmp_path: Path) -> None:
    config = supernet_config(tmp_path, UNIFORM, images=400, batch_size=32, augment=False, max_epochs=24)
    config.optim_wrapper.optimizer.lr = 2e-3
    seen = losses(train(config))
    assert np.mean(seen[-10:]) < 0.7 * np.mean(seen[:10])


RESUMES = {
    'sandwich, workers 0': dict(sampler=SANDWICH),
    'uniform, workers 2': dict(sampler=UNIFORM, workers=2),
    'sandwich, workers 2': dict(sampler=SANDWICH, workers=2),
    'shared, sorted': SHARED,
    'by iterations': dict(sampler=UNIFORM, max_iters=16),
    'accumulated, clipped': dict(sampler=SANDWICH, optim=dict(accumulative_counts=3, clip_grad=dict(max_norm=0.5))),
    'bfloat16': dict(sampler=SANDWICH, optim=dict(type='vitnas.BFloat16OptimWrapper')),
    'projected, accumulated': dict(
        sampler=SANDWICH,
        rule=dict(
            type='vitnas.Sandwich',
            distill=dict(type='vitnas.AdaptiveAlphaDivergence'),
            conflict=dict(type='vitnas.GradientProjection', start=0.3, clip_subnets=1.0),
        ),
        optim=dict(accumulative_counts=3),
    ),
}


@pytest.mark.parametrize('case', RESUMES)
def test_resume_is_equal_bit_for_bit(tmp_path: Path, case: str) -> None:
    """Stopped after 3 (mid-epoch), 8 (its end) or 13 of 16 steps; everything that goes on from there is the same."""

    def config(folder: str) -> Any:
        made = supernet_config(tmp_path / folder, checkpoint=dict(interval=1, by_epoch=False), **RESUMES[case])
        sort = dict(type='vitnas.SortChannelsHook', until=1.0)
        made.custom_hooks = [sort if 'sorted' in case else dict(type='EMAHook', momentum=0.1)]
        return made

    whole, seen = recorded(config('whole'))
    last = torch.load(tmp_path / 'whole' / 'iter_16.pth', weights_only=True)
    for stop in (3, 8, 13):
        folder = tmp_path / str(stop)
        folder.mkdir()
        (folder / 'last_checkpoint').write_text(str(tmp_path / 'whole' / f'iter_{stop}.pth'))
        resumed, again = recorded(config(str(stop)), resume=True)
        assert resumed.iter == 16
        assert again.steps == seen.steps[stop:]
        assert losses(resumed) == losses(whole)
        now = torch.load(folder / 'iter_16.pth', weights_only=True)
        for part in ('state_dict', 'optimizer', 'ema_state_dict', 'param_schedulers'):
            assert_equal_states(now.get(part), last.get(part), part)


def test_workers_do_not_change_what_is_trained(tmp_path: Path) -> None:
    runs = [recorded(supernet_config(tmp_path / str(n), UNIFORM, workers=n)) for n in (0, 2)]
    assert runs[0][1].steps == runs[1][1].steps
    assert losses(runs[0][0]) == losses(runs[1][0])


def test_another_seed_trains_otherwise(tmp_path: Path) -> None:
    config = supernet_config(tmp_path / 'b', UNIFORM)
    config.randomness.seed = 4
    assert losses(train(config)) != losses(train(supernet_config(tmp_path / 'a', UNIFORM)))


def test_epochs_see_other_crops(tmp_path: Path) -> None:
    _, recorder = recorded(supernet_config(tmp_path, UNIFORM))
    epochs = [sorted(pixels for _, pixels in recorder.steps[start : start + 8]) for start in (0, 8)]
    assert epochs[0] != epochs[1]


def test_the_global_generators_are_left_alone(tmp_path: Path) -> None:
    import random

    class Draw(Hook):
        def __init__(self) -> None:
            self.before: Any = None

        def before_train_epoch(self, runner: Runner) -> None:
            random.seed(1), np.random.seed(1), torch.manual_seed(1)

        def after_train_epoch(self, runner: Runner) -> None:
            self.after = (random.random(), np.random.rand(), torch.rand(1).item())

    runner, draw = Runner.from_cfg(supernet_config(tmp_path, UNIFORM, max_epochs=1)), Draw()
    runner.register_hook(draw)
    runner.train()
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    torch.empty((), dtype=torch.int64).random_()  # a data loader draws one number for its workers
    assert draw.after == (random.random(), np.random.rand(), torch.rand(1).item())


def test_iterations_pass_over_the_data_again_and_infinite_samplers_work(tmp_path: Path) -> None:
    runner, recorder = recorded(supernet_config(tmp_path / 'finite', UNIFORM, max_iters=11))
    assert (runner.iter, len(recorder.steps)) == (11, 11)
    config = supernet_config(tmp_path / 'infinite', UNIFORM, max_iters=20, checkpoint=dict(interval=9, by_epoch=False))
    config.train_dataloader.sampler = dict(type='InfiniteSampler', shuffle=True)
    whole, seen = recorded(config.copy())
    assert len({pixels for _, pixels in seen.steps}) == 20
    (tmp_path / 'infinite' / 'last_checkpoint').write_text(str(tmp_path / 'infinite' / 'iter_9.pth'))
    _, again = recorded(config, resume=True)
    assert again.steps == seen.steps[9:]


def test_the_val_loop_runs_at_the_largest(tmp_path: Path) -> None:
    seen = []

    class See(Hook):
        def before_val(self, runner: Runner) -> None:
            backbone = elastic_backbone(runner.model)
            seen.append(backbone.arch == backbone.space.largest())

    config = supernet_config(tmp_path, UNIFORM)
    config.train_cfg.val_interval = 1
    runner = Runner.from_cfg(config)
    runner.register_hook(See())
    runner.train()
    assert seen == [True, True]


@pytest.mark.parametrize(
    ('change', 'words'),
    [
        (dict(max_iters=3), 'either `max_epochs` or `max_iters`'),
        (
            dict(rule=dict(type='vitnas.SinglePath')),
            'trains one architecture per step, but SandwichSampler draws 3',
        ),
        (
            dict(sampler=UNIFORM, rule=dict(type='vitnas.Sandwich', distill=dict(type='vitnas.KLDivergence'))),
            'learns from the largest architecture, which UniformSampler does not draw first',
        ),
    ],
    ids=['lengths', 'rule', 'distill'],
)
def test_what_does_not_fit_is_refused_when_built(tmp_path: Path, change: dict, words: str) -> None:
    config = supernet_config(tmp_path)
    for key, value in change.items():
        config.train_cfg[key] = value
    with pytest.raises(VitnasError, match=words):
        Runner.from_cfg(config).train()


def test_a_model_that_is_not_elastic_is_refused(tmp_path: Path) -> None:
    config = supernet_config(tmp_path)
    config.model.backbone = dict(type='mmpretrain.ResNet', depth=18)
    config.model.head.in_channels = 512
    with pytest.raises(VitnasError, match='should hold one elastic backbone.*ImageClassifier holds none'):
        Runner.from_cfg(config).train()


def test_bfloat16_computes_in_bfloat16_and_keeps_float32_weights(tmp_path: Path) -> None:
    config = supernet_config(tmp_path, optim=dict(type='vitnas.BFloat16OptimWrapper'), max_epochs=1)
    seen = []
    handle = nn.modules.module.register_module_forward_hook(
        lambda module, args, out: (
            seen.append(out.dtype) if type(module).__name__ == 'ElasticLinear' and module.training else None
        )
    )
    try:
        runner = train(config)
    finally:
        handle.remove()
    assert set(seen) == {torch.bfloat16}
    assert isinstance(runner.optim_wrapper, BFloat16OptimWrapper)
    assert {p.dtype for p in runner.model.parameters()} == {torch.float32}
    assert np.isfinite(losses(runner)).all()


def test_an_infinite_sampler_needs_iterations(tmp_path: Path) -> None:
    config = supernet_config(tmp_path)
    config.train_dataloader.sampler = dict(type='InfiniteSampler', shuffle=True)
    with pytest.raises(VitnasError, match='an InfiniteSampler never ends an epoch: give SupernetTrainLoop `max_iters`'):
        Runner.from_cfg(config).train()


def test_a_resume_with_other_batches_goes_on_from_the_epoch(tmp_path: Path) -> None:
    train(supernet_config(tmp_path, UNIFORM, max_epochs=2))
    runner, recorder = recorded(supernet_config(tmp_path, UNIFORM, batch_size=16, max_epochs=4), resume=True)
    assert (runner.epoch, runner.iter, len(recorder.steps)) == (4, 16, 8)


def test_a_run_without_a_seed_resumes_with_the_one_it_had(tmp_path: Path) -> None:
    def config() -> Any:
        made = supernet_config(tmp_path, UNIFORM, checkpoint=dict(interval=1, by_epoch=False))
        made.randomness = dict(seed=None)
        return made

    _, seen = recorded(config())
    (tmp_path / 'last_checkpoint').write_text(str(tmp_path / 'iter_5.pth'))
    _, again = recorded(config(), resume=True)
    assert again.steps == seen.steps[5:]


def test_hooks_can_change_the_pipeline(tmp_path: Path) -> None:
    """As mmpretrain's SwitchRecipeHook does, on a dataset inside vitnas.HoldOut, too."""

    class Switch(Hook):
        def before_train_epoch(self, runner: Runner) -> None:
            dataset = runner.train_dataloader.dataset
            blank = [lambda results: {**results, 'img': np.zeros((32, 32, 3), np.uint8)}]
            dataset.pipeline = Compose([*blank, dict(type='mmpretrain.PackInputs')])

    runner = Runner.from_cfg(supernet_config(tmp_path, UNIFORM, max_epochs=1))
    recorder = Recorder()
    runner.register_hook(Switch())
    runner.register_hook(recorder)
    runner.train()
    assert {pixels for _, pixels in recorder.steps} == {0.0}


@pytest.mark.parametrize(
    ('change', 'got'),
    [
        ({}, ''),
        (dict(neck=None, out_type='avg_featmap'), ''),
        (dict(head=dict(type='mmpretrain.VisionTransformerClsHead', hidden_dim=8)), 'ImageClassifier with .*ClsHead'),
        (dict(neck=dict(type='mmpretrain.GeneralizedMeanPooling')), 'ImageClassifier with GeneralizedMeanPooling, '),
        (dict(segmentor=True), 'EncoderDecoder:'),
    ],
    ids=['linear', 'no-neck', 'head', 'neck', 'segmentor'],
)
def test_both_sides_are_trained_with_linear_heads_alone(tmp_path: Path, change: dict, got: str) -> None:
    """The sum of features has the sum of logits there; elsewhere it is something else than BCNet's."""
    model = model_config()
    model['backbone'].update(sharing='bilateral', **{k: v for k, v in change.items() if k == 'out_type'})
    model['neck'] = change.get('neck', model['neck'])
    model['head'].update(change.get('head', {}))
    if 'segmentor' in change:
        head = dict(type='mmseg.FCNHead', in_channels=72, channels=8, num_classes=10, norm_cfg=dict(type='BN'))
        model = dict(type='mmseg.EncoderDecoder', backbone=model['backbone'], decode_head=head)
    runner = Runner.from_cfg(supernet_config(tmp_path, UNIFORM, model=model, max_iters=1))
    if got:
        with pytest.raises(VitnasError, match=f"`sharing='bilateral'` trains the sum of both sides.*but got {got}"):
            runner.train_loop  # noqa: B018  (it is built here)
        elastic_backbone(runner.model).pattern.name = 'ordinal'
    assert runner.train_loop


def test_batch_norms_of_one_width_are_refused(tmp_path: Path) -> None:
    """What mmengine's ``sync_bn`` makes of elastic ones; the stem of ViT-Res has one width anyway."""
    for name, refused in (('nasvit', True), ('vit_res', False)):
        runner = Runner.from_cfg(supernet_config(tmp_path / name, model=model_config(FAMILIES[name]), max_epochs=1))
        runner.model.backbone = convert_sync_batchnorm(runner.model.backbone)
        if refused:
            with pytest.raises(VitnasError, match='`sync_bn` makes stem_bn and other batch norms'):
                runner.train_loop  # noqa: B018  (it is built here)
        else:
            assert runner.train_loop
