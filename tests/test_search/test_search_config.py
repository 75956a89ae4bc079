"""A search config needs no overrides of the training config that it inherits."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from mmengine.config import Config
from mmengine.hooks import EMAHook, Hook
from mmengine.registry import HOOKS
from mmengine.runner import EpochBasedTrainLoop

from tests.supernets import supernet_config
from vitnas_core.launch import make_runner
from vitnas_core.search import Random, RandomSearchLoop, SearchLoop, ranked
from vitnas_core.search.config import is_search, leave_out_training

from .common import config, save_supernet

RANDOM = dict(type='vitnas.RandomSearchLoop', num_candidates=3)
DRAWING = dict(type='VisualizationHook')  # of mmpretrain, for tests
TRAINING = [
    dict(type='EMAHook', momentum=1e-3),
    dict(type='vitnas.SupernetReportHook', interval=1),
    dict(type='vitnas.ConflictMeterHook', interval=1),
    dict(type='SwitchRecipeHook', schedule=[dict(action_epoch=1, train_pipeline=[])]),  # of mmpretrain
    dict(type='EachEpochHook'),
    dict(type=EMAHook),
]


@HOOKS.register_module()
class NotedHook(Hook):
    """A user's own."""

    ran = 0

    def after_train(self, runner: object) -> None:
        NotedHook.ran += 1


@HOOKS.register_module()
class EachEpochHook(Hook):
    """Another project's, which would change what a search sees."""

    def before_train(self, runner: object) -> None:
        raise AssertionError('a search trains nothing')

    def before_train_epoch(self, runner: object) -> None:
        raise AssertionError('a search has no epochs')


def inherited(work_dir: Path) -> Config:
    """A search that says nothing of what its base config trains with."""
    cfg = config(work_dir, RANDOM, launcher='none')
    cfg.update(
        val_cfg=dict(),
        val_dataloader=dict(dataset=dict(type='NoSuchDataset')),
        val_evaluator=dict(type='NoSuchMetric'),
        param_scheduler=[dict(type='CosineAnnealingLR', T_max=5)],
        optim_wrapper=dict(type='AmpOptimWrapper', optimizer=dict(type='AdamW', lr=1e-3)),  # refuses CPUs
        custom_hooks=[*copy.deepcopy(TRAINING), dict(type='NotedHook')],
        default_hooks=dict(timer=None, logger=dict(type='LoggerHook'), ema=dict(type='EMAHook'), drawing=DRAWING),
    )
    return Config(cfg)


def test_a_search_runs_on_the_config_of_its_supernet(tmp_path: Path) -> None:
    from .common import build

    plain = build(config(tmp_path / 'plain', RANDOM))
    plain.train()
    NotedHook.ran = 0
    runner = make_runner(inherited(tmp_path / 'run'))
    runner.train()
    assert NotedHook.ran == 1  # hooks that are not of a training stay
    assert [c.score for c in ranked(runner.train_loop.history)] == [c.score for c in ranked(plain.train_loop.history)]


def test_lines_that_say_so_are_as_good(tmp_path: Path) -> None:
    cfg = inherited(tmp_path / 'run')
    assert is_search(cfg)
    stated = copy.deepcopy(cfg)
    stated.update(dict(param_scheduler=None, val_dataloader=None, val_cfg=None, val_evaluator=None))
    stated.custom_hooks = [dict(type='NotedHook')]
    del stated.default_hooks['ema']
    leave_out_training(cfg)
    leave_out_training(stated)
    assert cfg.to_dict() == stated.to_dict()


def test_a_training_is_left_as_it_is(tmp_path: Path) -> None:
    cfg = inherited(tmp_path / 'run')
    for loop in (None, dict(max_epochs=1), dict(type='vitnas.SupernetTrainLoop')):
        cfg.train_cfg = loop
        before = copy.deepcopy(cfg)
        leave_out_training(cfg)
        assert not is_search(cfg) and cfg.to_dict() == before.to_dict()


def test_a_loop_may_be_a_class(tmp_path: Path) -> None:
    """As pure-Python configs give it."""
    path = tmp_path / 'pure.py'
    path.write_text(
        'from mmengine.runner import EpochBasedTrainLoop as Train\n'
        'from vitnas_core.search import RandomSearchLoop as Search\n'
        'train_cfg = dict(type=Train, max_epochs=1)\nsearch_cfg = dict(type=Search, num_candidates=3)\n'
    )
    pure = Config.fromfile(path)
    assert pure.train_cfg.type is EpochBasedTrainLoop and not is_search(pure)
    assert is_search(Config(dict(train_cfg=pure.search_cfg)))
    cfg = supernet_config(tmp_path / 'train', max_epochs=1)
    cfg.train_cfg, cfg.launcher = dict(type=EpochBasedTrainLoop, max_epochs=1), 'none'
    assert isinstance(make_runner(cfg).train_loop, EpochBasedTrainLoop)


@pytest.mark.parametrize(
    'loop',
    [
        dict(type=RandomSearchLoop, num_candidates=3),
        dict(type=SearchLoop, algorithm=dict(type=Random, num_candidates=3)),
        dict(type='vitnas.SearchLoop', algorithm=Random(num_candidates=3)),
    ],
)
def test_a_search_given_as_classes_and_objects(tmp_path: Path, loop: dict[str, Any]) -> None:
    named, cfg = inherited(tmp_path / 'named'), inherited(tmp_path / 'run')
    del cfg.train_cfg['num_candidates']
    cfg.train_cfg.update(loop)
    scores = []
    save_supernet(tmp_path)
    for one in (named, cfg):
        runner = make_runner(one)
        runner.train()
        scores.append([c.score for c in ranked(runner.train_loop.history)])
    assert scores[0] == scores[1] and len(scores[0]) == 3
