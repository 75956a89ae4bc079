"""Trainings of an earlier version resume exactly as they would have there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mmengine.config import Config
from mmengine.hooks import Hook
from mmengine.runner import Runner

from vitnas_core.backbones import elastic_backbone

from .common import folders, place, read, unpack

FOLDERS = folders('training')


class Steps(Hook):
    """Which architecture each step ended with."""

    def __init__(self) -> None:
        self.archs: list[str] = []

    def after_train_iter(self, runner: Runner, *args: Any, **kwargs: Any) -> None:
        self.archs.append(elastic_backbone(runner.model).arch.digest())


@pytest.mark.parametrize('whole', [False, True], ids=['resumed', 'whole'])
@pytest.mark.parametrize('name', FOLDERS)
def test_a_training_ends_as_it_did(tmp_path: Path, name: str, whole: bool) -> None:
    """Optimizer, averages, gradients that wait for an update, learned sampler and random draws, or one would differ."""
    expected = read(FOLDERS[name] / 'expected.json')
    config = Config(place(read(FOLDERS[name] / 'config.json'), WORK_DIR=tmp_path / 'run'))
    config.experiment_name = f'{tmp_path.name}'
    if not whole:
        config.update(resume=True, load_from=str(unpack(FOLDERS[name] / 'checkpoint.pth.xz', tmp_path)))
    runner, steps = Runner.from_cfg(config), Steps()
    runner.register_hook(steps)
    runner.train()
    assert steps.archs == expected['archs'][0 if whole else expected['stop'] :]
    losses = runner.message_hub.get_scalar('train/loss').data[0].tolist()
    assert losses == pytest.approx(expected['losses'], rel=1e-4)
