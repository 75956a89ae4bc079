"""A supernet training on the digits that takes seconds, with all the randomness of a recipe."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mmengine.config import Config
from mmengine.runner import Runner

from vitnas_core.spaces import Arch

from .families import FAMILIES, Family

SANDWICH = dict(type='vitnas.SandwichSampler', num_random=1)
UNIFORM = dict(type='vitnas.UniformSampler')


def model_config(family: Family = FAMILIES['autoformer'], drop_path: float = 0.2, mixup: bool = True) -> dict[str, Any]:
    backbone = dict(type=f'vitnas.{family.cls.__name__}', space=family.space.to_dict(), **family.settings)
    backbone['drop_path_rate'] = drop_path
    width = family.elastic(out_indices=(-1,)).out_channels()[-1]
    return dict(
        type='mmpretrain.ImageClassifier',
        backbone=backbone,
        neck=dict(type='mmpretrain.GlobalAveragePooling'),
        head=dict(type='mmpretrain.LinearClsHead', num_classes=10, in_channels=width, topk=(1,)),
        train_cfg=dict(augments=[dict(type='mmpretrain.Mixup', alpha=0.8)]) if mixup else None,
        data_preprocessor=dict(
            type='mmpretrain.ClsDataPreprocessor', num_classes=10, mean=[77.6] * 3, std=[95.9] * 3, to_onehot=mixup
        ),
    )


def _loader(part: str, images: int, batch_size: int, augment: bool, workers: int) -> dict[str, Any]:
    crop = [dict(type='mmpretrain.RandomCrop', crop_size=32, padding=4)] if augment else []
    resize = dict(type='mmpretrain.Resize', scale=32)
    pipeline = [resize, *crop, dict(type='mmpretrain.PackInputs')]
    digits = dict(type='vitnas.Digits', indices=images, serialize_data=False, pipeline=pipeline)
    return dict(
        batch_size=batch_size,
        num_workers=workers,
        dataset=dict(type='vitnas.HoldOut', dataset=digits, part=part, fraction=0.2),
        sampler=dict(type='DefaultSampler', shuffle=part == 'train'),
        drop_last=part == 'train',
    )


def supernet_config(
    work_dir: Path,
    sampler: dict = SANDWICH,
    rule: dict | None = None,
    images: int = 80,
    batch_size: int = 8,
    augment: bool = True,
    workers: int = 0,
    optim: dict | None = None,
    checkpoint: dict | None = None,
    model: dict | None = None,
    **length: Any,
) -> Config:
    """A config of 8 steps an epoch; ``length`` goes to the loop (2 epochs if nothing is said)."""
    rule = rule or dict(type='vitnas.SinglePath' if sampler is UNIFORM else 'vitnas.Sandwich')
    optimizer = dict(type='AdamW', lr=1e-3, weight_decay=0.05)
    return Config(
        dict(
            default_scope='mmpretrain',
            model=model or model_config(drop_path=0.2 if augment else 0.0, mixup=augment),
            work_dir=str(work_dir),
            train_dataloader=_loader('train', images, batch_size, augment, workers),
            val_dataloader=_loader('holdout', images, 16, False, 0),
            val_cfg=dict(),
            val_evaluator=dict(type='mmpretrain.Accuracy', topk=(1,)),
            train_cfg=dict(
                type='vitnas.SupernetTrainLoop',
                sampler=sampler,
                rule=rule,
                val_interval=100,
                **(length or dict(max_epochs=2)),
            ),
            optim_wrapper={'type': 'OptimWrapper', 'optimizer': optimizer, **(optim or {})},
            param_scheduler=dict(type='LinearLR', start_factor=0.1, by_epoch=False, begin=0, end=10),
            default_hooks=dict(checkpoint=dict(type='vitnas.CheckpointHook', **(checkpoint or dict(interval=1)))),
            custom_hooks=[],
            find_unused_parameters=True,
            randomness=dict(seed=3),
            log_level='ERROR',
            experiment_name=f'{work_dir.name}_{id(work_dir)}',
        )
    )


def train(config: Config) -> Runner:
    runner = Runner.from_cfg(config)
    runner.train()
    return runner


def losses(runner: Runner) -> list[float]:
    return runner.message_hub.get_scalar('train/loss').data[0].tolist()


def watch(runner: Runner, archs: list[str]) -> None:
    """Note what each step of a supernet's training trains."""
    rule = runner.train_loop.rule
    step = rule.step

    def watched(model: Any, batch: Any, drawn: list[Arch], optim_wrapper: Any) -> dict[str, Any]:
        archs.append(' '.join(arch.digest() for arch in drawn))
        return step(model, batch, drawn, optim_wrapper)

    rule.step = watched
