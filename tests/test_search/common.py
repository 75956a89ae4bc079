"""Helpers of the search tests: a small supernet on the digits, in a real runner, and a scorer with a known table."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from mmengine.config import Config
from mmengine.runner import Runner

from tests.families import FAMILIES
from vitnas_core.evaluation import Job, Result
from vitnas_core.search import Candidate, Journal, SearchLoop
from vitnas_core.spaces import Arch
from vitnas_core.training.samplers import FocusSampler

SETTINGS = dict(input_size=32, num_classes=10)
SAMPLER = dict(**SETTINGS, step=3e5, width=16)


def holdout(pipeline_scale: int = 32, per_class: int = 10) -> dict[str, Any]:
    pipeline = [dict(type='Resize', scale=pipeline_scale), dict(type='PackInputs')]
    train = dict(type='vitnas.Digits', split='train', pipeline=pipeline, serialize_data=False)
    return dict(type='vitnas.HoldOut', part='holdout', per_class=per_class, dataset=train)


def model_config(family: str = 'autoformer') -> dict[str, Any]:
    of = FAMILIES[family]
    backbone = dict(type=f'vitnas.{of.cls.__name__}', space=of.space.to_dict(), **of.settings)
    return dict(
        type='mmpretrain.ImageClassifier',
        backbone=backbone,
        data_preprocessor=dict(type='mmpretrain.ClsDataPreprocessor', mean=[77.6] * 3, std=[95.9] * 3, num_classes=10),
        neck=dict(type='mmpretrain.GlobalAveragePooling'),
        head=dict(type='mmpretrain.LinearClsHead', num_classes=10, in_channels=of.elastic().out_channels()[-1]),
    )


def config(work_dir: Path, search: dict[str, Any], family: str = 'autoformer', **changes: Any) -> dict[str, Any]:
    """A whole config; the supernet's weights are random but saved, as a search needs them."""
    priced = {} if 'sampler' in search else SETTINGS  # a sampler knows what it prices for
    cfg = dict(
        model=model_config(family),
        work_dir=str(work_dir),
        train_dataloader=dict(
            batch_size=25, num_workers=0, dataset=holdout(), sampler=dict(type='DefaultSampler', shuffle=True)
        ),
        train_cfg={'evaluator': dict(type='mmpretrain.Accuracy'), **priced, **search},
        optim_wrapper=dict(optimizer=dict(type='SGD', lr=0.1)),
        load_from=str(work_dir.parent / f'{family}.pth'),
        default_scope='mmpretrain',
        randomness=dict(seed=0),
        experiment_name=f'{work_dir.parent.name}_{work_dir.name}',
        log_level='WARNING',
    )
    cfg.update(changes)
    return cfg


def save_supernet(folder: Path, family: str = 'autoformer') -> Path:
    """Random weights, spread so far that architectures score differently."""
    from mmpretrain.registry import MODELS

    torch.manual_seed(0)
    model = MODELS.build(model_config(family))
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            if tensor.ndim > 1:
                tensor.mul_(3.0 if 'backbone' in name else 10.0)
            elif '.vectors.' in name or name.endswith('project_bn.weight'):
                tensor.fill_(1.0)  # branches that begin with nothing
    path = folder / f'{family}.pth'
    folder.mkdir(parents=True, exist_ok=True)
    torch.save({'state_dict': model.state_dict(), 'arch_sampler': sampler_of(family).state_dict()}, path)
    return path


def sampler_of(family: str) -> FocusSampler:
    """A learned sampler before it has learned."""
    sampler, backbone = FocusSampler(**SAMPLER), FAMILIES[family].elastic()
    sampler.bind(backbone.space, backbone.price, 0)
    return sampler


def build(cfg: dict[str, Any]) -> Runner:
    supernet = Path(cfg['load_from'] or '.')
    if cfg['load_from'] and not supernet.exists():
        save_supernet(supernet.parent, family=supernet.stem)
    return Runner.from_cfg(Config(cfg))


def noise(arch: Arch) -> float:
    """A made-up score from 0 to 100, without structure, the same in every process."""
    return int(hashlib.sha256(arch.digest().encode()).hexdigest()[:8], 16) / 2**32 * 100


class Table:
    """A scorer with a known table instead of a network; counts what it is asked."""

    metric = 'table'

    def __init__(self, score: Callable[[Arch], float]) -> None:
        self.table, self.asked = score, []

    def score(self, job: Job) -> Result:
        self.asked.append((job.arch, job.fraction))
        return Result(self.table(job.arch))


def search(cfg: dict[str, Any], score: Callable[[Arch], float] | None = None, pictures: bool = False) -> SearchLoop:
    """Run a search, with a table in the place of the network if one is given."""
    runner = build(cfg)
    loop = runner.train_loop
    if score is not None:
        loop.scorer = Table(score)
        loop.scorer.activate = loop.backbone.set_arch
    with nullcontext() if pictures else patch('vitnas_core.search.outputs.write_pictures'):
        runner.train()
    return loop


def history(work_dir: Path, loop: SearchLoop) -> list[Candidate]:
    found = Journal(work_dir, loop.header()).open()
    return [found[number] for number in sorted(found)]


def without_seconds(candidates: list[Candidate]) -> list[dict[str, Any]]:
    return [{k: v for k, v in candidate.to_dict().items() if k != 'seconds'} for candidate in candidates]
