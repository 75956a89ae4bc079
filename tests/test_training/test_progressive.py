"""Progressive learning: sizes grow in steps of the patch, and only training images are resized."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from mmengine.hooks import Hook
from mmengine.runner import Runner

from tests.families import FAMILIES
from tests.supernets import UNIFORM, losses, model_config, supernet_config
from vitnas_core.errors import VitnasError
from vitnas_core.training.hooks import ProgressiveLearningHook

HOOK = dict(type='vitnas.ProgressiveLearningHook', start=16, end=32, step=8)


def test_the_papers_sizes_take_equal_parts() -> None:
    imagenet, cifar = ProgressiveLearningHook(160, 224), ProgressiveLearningHook(128, 224, 16)
    assert imagenet.sizes == (160, 176, 192, 208, 224) and cifar.sizes == tuple(range(128, 225, 16))
    epochs = [imagenet.size_at(epoch / 500) for epoch in range(500)]
    assert [epochs.count(size) for size in imagenet.sizes] == [100] * 5 and epochs == sorted(epochs)
    assert imagenet.size_at(1.0) == 224


class Watch(Hook):
    """What sizes the network sees while training and while validating."""

    def before_run(self, runner: Runner) -> None:
        self.seen: dict[bool, list[int]] = {True: [], False: []}
        first = runner.model.backbone
        first.register_forward_pre_hook(lambda module, args: self.seen[module.training].append(args[0].shape[-1]))


@pytest.mark.parametrize('family', FAMILIES.values(), ids=FAMILIES.keys())
def test_only_training_images_grow(tmp_path: Path, family: Any) -> None:
    config = supernet_config(tmp_path, UNIFORM, max_epochs=3, model=model_config(family))
    config.custom_hooks = [HOOK]
    config.train_cfg.val_interval = 1
    runner, watch = Runner.from_cfg(config), Watch()
    runner.register_hook(watch)
    runner.train()
    assert watch.seen[True] == [16] * 8 + [24] * 8 + [32] * 8
    assert set(watch.seen[False]) == {32}
    assert np.isfinite(losses(runner)).all()
    assert set(runner.message_hub.get_scalar('train/image_size').data[0]) == {16, 24, 32}


@pytest.mark.parametrize('dtype', [torch.uint8, torch.float32])
@pytest.mark.parametrize('stacked', [False, True])
def test_images_are_averaged_and_keep_their_type(dtype: torch.dtype, stacked: bool) -> None:
    image = torch.arange(4 * 4, dtype=torch.float32).view(1, 4, 4).expand(3, 4, 4)
    images = [image.to(dtype), (image + 100).to(dtype)]
    batch = {'inputs': torch.stack(images) if stacked else images}
    runner = SimpleNamespace(iter=0, max_iters=10, message_hub=SimpleNamespace(update_scalar=lambda *_: None))
    ProgressiveLearningHook(2, 4, 2).before_train_iter(runner, 0, batch)
    resized = batch['inputs']
    assert resized.shape == (2, 3, 2, 2) and resized.dtype == dtype
    # Antialiased: every pixel counts, so the mean stays.
    assert resized[0].float().mean() == pytest.approx(7.5, abs=0.5)
    assert resized[1].float().mean() - resized[0].float().mean() == pytest.approx(100)


@pytest.mark.parametrize(
    ('arguments', 'words'),
    [
        (dict(start=0, end=32), '`start` should be a whole number of at least 16, but got 0'),
        (dict(start=48, end=32), '`end` should be a whole number of at least 48, but got 32'),
        (dict(start=100, end=224), '`start` and `end` should be multiples of `step`, 16, but got 100 and 224'),
    ],
)
def test_mistakes(arguments: dict, words: str) -> None:
    with pytest.raises(VitnasError, match=words):
        ProgressiveLearningHook(**arguments)


def test_images_of_another_size_are_refused(tmp_path: Path) -> None:
    config = supernet_config(tmp_path, UNIFORM, max_epochs=1)
    config.custom_hooks = [{**HOOK, 'end': 64}]
    with pytest.raises(VitnasError, match='`end` of vitnas.ProgressiveLearningHook is 64, but .* images of 32 × 32'):
        Runner.from_cfg(config).train()


def test_sizes_between_patches_are_refused(tmp_path: Path) -> None:
    config = supernet_config(tmp_path, UNIFORM, max_epochs=1)
    config.custom_hooks = [dict(type='vitnas.ProgressiveLearningHook', start=16, end=32, step=4)]
    with pytest.raises(VitnasError, match='should be multiples of the patch size, 8, but got 16 and 4'):
        Runner.from_cfg(config).train()


def test_a_backbone_that_resizes_images_by_itself_is_refused(tmp_path: Path) -> None:
    """NASViT does as a classifier, and with ``out_indices``, above, does not."""
    family = FAMILIES['nasvit']
    model = model_config(family)
    del model['backbone']['out_indices']
    model['head']['in_channels'] = family.elastic(out_indices=None).out_channels()[-1]
    config = supernet_config(tmp_path, UNIFORM, max_epochs=1, model=model)
    Runner.from_cfg(config).train()
    config.custom_hooks = [HOOK]
    with pytest.raises(VitnasError, match='would change nothing: as a classifier, NASViT resizes images'):
        Runner.from_cfg(config).train()


def test_other_tasks_are_refused() -> None:
    from mmengine.structures import BaseDataElement

    batch = {'inputs': [torch.zeros(3, 32, 32)], 'data_samples': [BaseDataElement(gt_instances=1)]}
    runner = SimpleNamespace(iter=0, max_iters=10)
    with pytest.raises(VitnasError, match='resizes images of classifiers only: boxes and masks stay'):
        ProgressiveLearningHook(16, 32).before_train_iter(runner, 0, batch)
