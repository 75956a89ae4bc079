"""FocusFormer's training: its sampler learns with the supernet or after it, is in checkpoints, and resumes exactly."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from mmengine.config import Config
from mmengine.runner import Runner

from tests.families import FAMILIES, Family
from tests.supernets import UNIFORM, losses, model_config, supernet_config, train
from vitnas_core.errors import CheckpointError, VitnasError
from vitnas_core.training.samplers import FocusSampler

from .test_loop import assert_equal_states, recorded

ROOT = Path(__file__).parents[2]
FOCUS = dict(type='vitnas.FocusSampler', input_size=32, num_classes=10, step=5e5, width=16)
SINGLE = dict(type='vitnas.SinglePath')
TRAINING = dict(num_archs=2, baseline=0.9, entropy=0.01, optimizer=dict(type='AdamW', lr=5e-3))
HOOK = dict(type='vitnas.SamplerTrainHook', interval=1, iterations=4, **TRAINING)


def focus_config(work_dir: Path, hook: dict | None = HOOK, **settings: Any) -> Config:
    config = supernet_config(work_dir, **{'sampler': FOCUS, 'rule': SINGLE, **settings})
    config.custom_hooks = [] if hook is None else [hook]
    return config


def weights(runner: Runner) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in runner.train_loop.sampler.policy.state_dict().items()}


@pytest.mark.parametrize('family', FAMILIES.values(), ids=FAMILIES.keys())
def test_any_family_trains_with_its_sampler(tmp_path: Path, family: Family) -> None:
    runner, recorder = recorded(focus_config(tmp_path, model=model_config(family)))
    assert len({arch for arch, _ in recorder.steps}) > 5
    training = runner.train_loop.sampler.training
    assert (training.iterations, training.last) == (8, 1)


@pytest.mark.parametrize(
    ('interval', 'length', 'due'),
    [(1, dict(max_epochs=3), [0, 8, 16]), (2, dict(max_epochs=5), [8, 24]), (5, dict(max_iters=16), [4, 9, 14])],
    ids=['every epoch', 'every second epoch', 'every fifth iteration'],
)
def test_it_is_trained_before_every_nth_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interval: int, length: dict, due: list[int]
) -> None:
    """Alg. 1: t = nτ, counted from 1, before the batches of t."""
    from vitnas_core.training.reinforce import SamplerTraining

    seen, run = [], SamplerTraining.run

    def noted(self: SamplerTraining, iterations: int) -> Any:
        seen.append((self.runner.iter, iterations))
        yield from run(self, iterations)

    monkeypatch.setattr(SamplerTraining, 'run', noted)
    train(focus_config(tmp_path, {**HOOK, 'interval': interval}, **length))
    assert seen == [(step, 4) for step in due]


def test_another_interval_holds_from_a_resume_on(tmp_path: Path) -> None:
    train(focus_config(tmp_path, max_epochs=2))
    config = focus_config(tmp_path, {**HOOK, 'interval': 2}, max_epochs=5)
    config.resume = True
    training = train(config).train_loop.sampler.training
    assert (training.iterations, training.last) == (3 * 4, 3)  # before the first, the second and the fourth epoch


def test_testing_and_validating_need_no_training(tmp_path: Path) -> None:
    """The hook stands in the config that a supernet is tested by."""
    config = focus_config(tmp_path, max_epochs=1)
    runner = Runner.from_cfg(config)
    runner.train()
    training, state = runner.train_loop.sampler.training, runner.train_loop.sampler.state_dict()
    runner.val()
    assert runner.train_loop.sampler.training is training
    assert_equal_states(state, runner.train_loop.sampler.state_dict())
    config.train_dataloader.dataset = dict(type='NoSuchDataset')  # is not built
    config.experiment_name = 'val'
    assert 'accuracy/top1' in Runner.from_cfg(config).val()


def test_averaged_weights_are_rewarded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from vitnas_core.training.reinforce import SamplerTraining

    seen, accuracy = [], SamplerTraining.accuracy

    def noted(self: SamplerTraining, arch: Any, batch: Any) -> float:
        seen.append(self._model.head.fc.weight.clone())
        return accuracy(self, arch, batch)

    monkeypatch.setattr(SamplerTraining, 'accuracy', noted)
    config = focus_config(tmp_path, {**HOOK, 'interval': 2, 'iterations': 1}, max_epochs=2)
    config.custom_hooks.append(dict(type='EMAHook', momentum=1e-9))  # the averages stay where the first step went
    runner = train(config)
    assert len(seen) == 3  # once to try the metric, before the first step; then after eight of them
    assert (seen[1] - seen[0]).abs().max() < 2e-4 < 1e-3 < (runner.model.head.fc.weight - seen[0]).abs().max()


CASES: dict[str, dict[str, Any]] = {
    'by epochs': dict(),
    'workers': dict(workers=2),
    'by iterations': dict(max_iters=16),
}


@pytest.mark.parametrize('case', CASES)
def test_resume_is_equal_bit_for_bit(tmp_path: Path, case: str) -> None:
    """Stopped after 3 (mid-epoch), 8 (its end) or 13 of 16 steps; π, its optimizer and its averages included."""

    def config(folder: str) -> Config:
        hook = {**HOOK, 'interval': 5} if 'max_iters' in CASES[case] else HOOK
        made = focus_config(tmp_path / folder, hook, checkpoint=dict(interval=1, by_epoch=False), **CASES[case])
        made.custom_hooks.append(dict(type='vitnas.ProgressiveLearningHook', start=16, end=32, step=8))
        return made

    whole, seen = recorded(config('whole'))
    last = torch.load(tmp_path / 'whole' / 'iter_16.pth', weights_only=True)
    assert last['arch_sampler']['training']['iterations'] >= 8
    for stop in (3, 8, 13):
        folder = tmp_path / str(stop)
        folder.mkdir()
        (folder / 'last_checkpoint').write_text(str(tmp_path / 'whole' / f'iter_{stop}.pth'))
        resumed, again = recorded(config(str(stop)), resume=True)
        assert again.steps == seen.steps[stop:]
        assert losses(resumed) == losses(whole)
        now = torch.load(folder / 'iter_16.pth', weights_only=True)
        for part in ('state_dict', 'optimizer', 'arch_sampler'):
            assert_equal_states(now[part], last[part], part)


def test_a_training_that_was_killed_ends_as_one_that_was_not(tmp_path: Path) -> None:
    """A real SIGKILL, wherever it hits, then --resume."""
    config = tmp_path / 'config.py'
    made = focus_config(tmp_path, checkpoint=dict(interval=1, by_epoch=False), max_epochs=3)
    made.custom_imports = dict(imports=['vitnas_core'])
    made.dump(config)
    environment = {**os.environ, 'OMP_NUM_THREADS': '1', 'PYTHONPATH': str(ROOT)}

    def command(folder: str, *more: str) -> list[str]:
        return [
            sys.executable,
            str(ROOT / 'tools' / 'train.py'),
            str(config),
            '--work-dir',
            str(tmp_path / folder),
            *more,
        ]

    subprocess.run(command('whole'), env=environment, check=True, capture_output=True)
    process = subprocess.Popen(command('killed'), env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 120
    while not (tmp_path / 'killed' / 'iter_9.pth').exists() and time.monotonic() < until and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / 'killed' / 'iter_24.pth').exists(), 'the training ended before it was killed'
    subprocess.run(command('killed', '--resume'), env=environment, check=True, capture_output=True)
    ends = [torch.load(tmp_path / name / 'iter_24.pth', weights_only=True) for name in ('whole', 'killed')]
    for part in ('state_dict', 'optimizer', 'arch_sampler'):
        assert_equal_states(ends[0][part], ends[1][part], part)


def test_rewards_are_what_a_validation_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The accuracy of an architecture on the held-out images, as a fraction; with one batch of all of them."""
    from vitnas_core.training.reinforce import SamplerTraining

    asked = []
    accuracy = SamplerTraining.accuracy

    def noted(self: SamplerTraining, arch: Any, batch: Any) -> float:
        training = self._model.training
        asked.append((arch, accuracy(self, arch, batch)))
        assert self._model.training == training
        return asked[-1][1]

    monkeypatch.setattr(SamplerTraining, 'accuracy', noted)
    # 80 images, a fifth of them held out: a batch of 16 is all of them.
    config = focus_config(
        tmp_path, {**HOOK, 'interval': 2, 'iterations': 3}, batch_size=16, max_epochs=2, augment=False
    )
    config.train_dataloader.drop_last = False
    runner = Runner.from_cfg(config)
    runner.train()
    assert len(asked) == 7  # the first tries the metric
    config.optim_wrapper.optimizer.lr = 0.0
    config.work_dir, config.experiment_name = str(tmp_path / 'still'), 'still'
    config.param_scheduler = None
    asked.clear()
    still = Runner.from_cfg(config)
    still.train()
    for arch, found in asked:
        still.train_loop.backbone.set_arch(arch)
        assert found == pytest.approx(still.val_loop.run()['accuracy/top1'] / 100)


def sampler_config(work_dir: Path, supernet: str | None, **changes: Any) -> Config:
    config = supernet_config(work_dir, UNIFORM, checkpoint=dict(interval=1, by_epoch=False))
    images = {**config.val_dataloader, 'batch_size': 8}
    evaluator = dict(type='mmpretrain.Accuracy', topk=(1,))
    loop = dict(type='vitnas.SamplerTrainLoop', sampler=FOCUS, max_iters=6, evaluator=evaluator, **TRAINING)
    config.merge_from_dict(
        dict(train_cfg={'_delete_': True, **loop, **changes}, train_dataloader={'_delete_': True, **images})
    )
    config.val_dataloader = config.val_cfg = config.val_evaluator = config.param_scheduler = None
    config.load_from = supernet
    return config


def test_a_sampler_is_trained_on_a_finished_supernet_and_resumed(tmp_path: Path) -> None:
    """Whatever trained the supernet; its weights stay, and every checkpoint is one that a search can read."""
    train(supernet_config(tmp_path / 'supernet', UNIFORM, max_epochs=1))
    supernet = str(tmp_path / 'supernet' / 'epoch_1.pth')
    runner = train(sampler_config(tmp_path / 'whole', supernet))
    assert (runner.iter, runner.max_iters, runner.train_loop.sampler.training.iterations) == (6, 6, 6)
    last = torch.load(tmp_path / 'whole' / 'iter_6.pth', weights_only=True)
    assert_equal_states(last['state_dict'], torch.load(supernet, weights_only=True)['state_dict'])
    first = torch.load(tmp_path / 'whole' / 'iter_1.pth', weights_only=True)['arch_sampler']['policy']
    assert any(not torch.equal(first[name], value) for name, value in last['arch_sampler']['policy'].items())
    for stop in (2, 5):
        folder = tmp_path / str(stop)
        folder.mkdir()
        (folder / 'last_checkpoint').write_text(str(tmp_path / 'whole' / f'iter_{stop}.pth'))
        config = sampler_config(folder, None)
        config.resume = True
        assert train(config).iter == 6
        now = torch.load(folder / 'iter_6.pth', weights_only=True)
        for part in ('state_dict', 'arch_sampler'):
            assert_equal_states(now[part], last[part], part)


def test_load_from_takes_over_a_sampler_that_fits_and_says_so_of_others(tmp_path: Path) -> None:
    trained = train(focus_config(tmp_path / 'supernet', max_epochs=1))
    supernet = str(tmp_path / 'supernet' / 'epoch_1.pth')
    fits = Runner.from_cfg(sampler_config(tmp_path / 'fits', supernet))
    loop = fits.train_loop
    fits.load_or_resume()
    assert_equal_states(weights(fits), weights(trained))
    assert loop.sampler.training.iterations == 0  # only what was learned
    other = sampler_config(tmp_path / 'other', supernet, sampler={**FOCUS, 'step': 7e5})
    other.log_level = 'WARNING'
    train(other)
    (log,) = (tmp_path / 'other').glob('*/*.log')
    words = (
        'starts untrained: the architecture sampler of the checkpoint does not fit: its step is 500000.0, not 700000.0'
    )
    assert words in log.read_text()


def test_resuming_with_another_sampler_is_refused(tmp_path: Path) -> None:
    train(focus_config(tmp_path, max_epochs=1))
    for sampler, words in (
        ({**FOCUS, 'width': 8}, 'does not fit: its width is 16, not 8'),
        ({**FOCUS, 'num_classes': 0}, 'does not fit: its range of budgets is'),
    ):
        config = focus_config(tmp_path, sampler=sampler, max_epochs=2)
        config.resume = True
        with pytest.raises(CheckpointError, match=words):
            Runner.from_cfg(config).train()
    train(supernet_config(tmp_path / 'uniform', UNIFORM, max_epochs=1))
    config = focus_config(tmp_path / 'uniform', max_epochs=2)
    config.resume = True
    with pytest.raises(CheckpointError, match='the checkpoint has no architecture sampler for FocusSampler'):
        Runner.from_cfg(config).train()


@pytest.mark.parametrize(
    ('change', 'words'),
    [
        (
            dict(custom_hooks=[{**HOOK, 'interval': 0}]),
            '`interval` should be a whole number of at least 1, but got 0',
        ),
        (dict(train_cfg=dict(sampler=UNIFORM)), 'only a sampler that learns can be trained, but the loop has Unif'),
        (
            dict(custom_hooks=[{**HOOK, 'metric': 'accuracy/top7'}]),
            '`metric` is accuracy/top7; the evaluator gives',
        ),
        (dict(custom_hooks=[{**HOOK, 'scale': None}]), '`scale` should be a number, but got None'),
        (
            dict(val_dataloader=None, val_evaluator=None, val_cfg=None),
            'vitnas.SamplerTrainHook needs val_dataloader and val_evaluator',
        ),
        (
            dict(rule=dict(type='vitnas.Sandwich', distill=dict(type='vitnas.KLDivergence'))),
            'learns from the largest architecture, which FocusSampler does not draw first',
        ),
    ],
    ids=['numbers', 'uniform', 'metric', 'scale', 'no images', 'rule'],
)
def test_what_does_not_fit_is_refused(tmp_path: Path, change: dict, words: str) -> None:
    config = focus_config(tmp_path)
    if 'rule' in change:
        config.train_cfg.rule = change.pop('rule')
    if 'train_cfg' in change:
        config.train_cfg.sampler = change.pop('train_cfg')['sampler']
    for key, value in change.items():
        config[key] = value
    with pytest.raises(VitnasError, match=words):
        Runner.from_cfg(config).train()


def test_rewards_never_come_from_the_test_set(tmp_path: Path) -> None:
    config = focus_config(tmp_path)
    config.test_dataloader = {**config.val_dataloader, 'dataset': dict(config.val_dataloader.dataset.dataset)}
    config.test_cfg, config.test_evaluator = dict(), config.val_evaluator
    with pytest.raises(VitnasError, match="the sampler's training reads vitnas.Digits, the dataset of test_dataloader"):
        Runner.from_cfg(config).train()


def test_a_sampler_loop_needs_a_supernet_and_iterations(tmp_path: Path) -> None:
    with pytest.raises(VitnasError, match='vitnas.SamplerTrainLoop needs a trained supernet'):
        Runner.from_cfg(sampler_config(tmp_path, None)).train()
    with pytest.raises(VitnasError, match='`max_iters` should be a whole number of at least 1, but got 0'):
        Runner.from_cfg(sampler_config(tmp_path, 'x.pth', max_iters=0)).train()
    with pytest.raises(VitnasError, match='only a sampler that learns can be trained'):
        Runner.from_cfg(sampler_config(tmp_path, 'x.pth', sampler=UNIFORM)).train()
    nothing = sampler_config(tmp_path / 'nothing', None)
    nothing.resume = True
    with pytest.raises(VitnasError, match='there is nothing to resume in .*: give the supernet as load_from'):
        Runner.from_cfg(nothing).train()


def test_mistakes_of_a_sampler_loop(tmp_path: Path) -> None:
    train(supernet_config(tmp_path / 'supernet', UNIFORM, max_epochs=1))
    supernet = str(tmp_path / 'supernet' / 'epoch_1.pth')
    train(sampler_config(tmp_path / 'run', supernet))
    fewer = sampler_config(tmp_path / 'run', None, max_iters=4)
    fewer.resume = True
    with pytest.raises(VitnasError, match='`max_iters` is 4, but 6 iterations are done already'):
        Runner.from_cfg(fewer).train()
    for hook, words in (
        (HOOK, 'the sampler is trained twice: take vitnas.SamplerTrainHook out of custom_hooks'),
        (dict(type='vitnas.ProgressiveLearningHook', start=16, end=32, step=8), 'needs a loop that trains on images'),
    ):
        config = sampler_config(tmp_path / 'two', supernet)
        config.val_dataloader, config.val_cfg = config.train_dataloader, dict()
        config.val_evaluator = dict(type='mmpretrain.Accuracy', topk=(1,))
        config.custom_hooks = [hook]
        with pytest.raises(VitnasError, match=words):
            Runner.from_cfg(config).train()


def test_a_metric_of_all_images_is_refused(tmp_path: Path) -> None:
    import mmdet.evaluation  # noqa: F401

    annotations = dict(images=[dict(id=1, file_name='1.png')], annotations=[], categories=[])
    (tmp_path / 'all.json').write_text(json.dumps(annotations))
    config = focus_config(tmp_path)
    config.val_evaluator = dict(type='mmdet.CocoMetric', ann_file=str(tmp_path / 'all.json'))
    with pytest.raises(VitnasError, match='a mini-batch, but CocoMetric counts the objects of all 1 images'):
        Runner.from_cfg(config).train()


def test_without_the_hook_it_stays_as_it_began(tmp_path: Path) -> None:
    runner = train(focus_config(tmp_path, hook=None, max_epochs=1))
    sampler = runner.train_loop.sampler
    again = FocusSampler(**{key: value for key, value in FOCUS.items() if key != 'type'})
    again.bind(runner.train_loop.backbone.space, runner.train_loop.backbone.price, 3)  # the run's seed
    assert_equal_states(weights(runner), dict(again.policy.state_dict()))
    assert sampler.training is None and 'training' not in sampler.state_dict()


def test_prices_are_those_of_the_images_and_the_head(tmp_path: Path) -> None:
    derived = {name: value for name, value in FOCUS.items() if name not in ('input_size', 'num_classes')}
    ranges = []
    for sampler in (FOCUS, derived):
        config = focus_config(tmp_path, None, sampler=sampler)
        loop = Runner.from_cfg(config).build_train_loop(config.train_cfg)
        ranges.append((loop.sampler.low, loop.sampler.high))
    assert ranges[0] == ranges[1]
    for wrong, words in (
        (dict(input_size=64), 'makes them 32 x 32'),
        (dict(num_classes=7), 'the head of the model has 10'),
    ):
        with pytest.raises(VitnasError, match=words):
            Runner.from_cfg(focus_config(tmp_path, None, sampler={**FOCUS, **wrong})).train()
