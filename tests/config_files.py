"""The configs of the repository, the files of earlier steps that they name, and small runs of them."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope

from vitnas_core import zoo
from vitnas_core.evaluation.pricing import pricer
from vitnas_core.model_configs import backbone_of, fixed_config, model_config
from vitnas_core.registry import ARCH_SAMPLERS
from vitnas_core.search.config import is_search
from vitnas_core.training.samplers import ArchSampler
from vitnas_core.training.samplers.base import SAMPLER

from .tiny_sets import datasets_of, make_tiny

ROOT = Path(__file__).resolve().parent.parent
FILES = sorted((ROOT / 'projects').glob('*/configs/**/*.py'))
CONFIGS = {path.stem: path for path in FILES if 'studies' not in path.parts}
CLASSIFICATION = sorted(stem for stem, path in CONFIGS.items() if 'classification' in path.parts)
DENSE = [stem for stem, path in CONFIGS.items() if {'detection', 'segmentation'} & set(path.parts)]
VQA = [stem for stem, path in CONFIGS.items() if 'vqa' in path.parts]

# The smallest search of each kind: two candidates.
SMALL_SEARCH: dict[str, dict[str, Any]] = {
    'EvolutionSearchLoop': dict(population=2, initial=2, parents=1, generations=1, mutations=1, crossovers=1),
    'NSGA2SearchLoop': dict(population=2, parents=1, generations=1),
    'SuccessiveHalvingLoop': dict(num_candidates=2),
    'SamplerSearchLoop': dict(num_candidates=2),
    'PredictorSearchLoop': dict(
        num_samples=4, num_final=2, trees=2, parents=2, mutations=2, crossovers=2, rounds=1, recalibrate=1
    ),
}


def strings(node: Any) -> Iterator[str]:
    """Every string of a config."""
    if isinstance(node, str):
        yield node
    elif isinstance(node, dict):
        for value in node.values():
            yield from strings(value)
    elif isinstance(node, (list, tuple)):
        for value in node:
            yield from strings(value)


@functools.cache
def parsed(stem: str) -> Config:
    """A config to look at, not to change: a toolbox's config among its bases takes long to find."""
    return Config.fromfile(CONFIGS[stem])


# what a config does


def loop_type(cfg: Config) -> str:
    return cfg.train_cfg.get('type', 'EpochBasedTrainLoop').rpartition('.')[2]


def sampler_hooks(cfg: Config) -> list[dict[str, Any]]:
    return [hook for hook in cfg.get('custom_hooks') or [] if hook['type'] == 'vitnas.SamplerTrainHook']


def is_space_search(cfg: Config) -> bool:
    return cfg.get('runner_type') == 'vitnas.SpaceSearch'


# what earlier steps leave


def source_of(path: str) -> Config:
    """The config in whose work dir a file lies."""
    stem = Path(path).parts[1]
    assert stem in CONFIGS, f'{path} is in the work dir of no config of the repository'
    return parsed(stem)


def provide_files(cfg: Config) -> dict[Path, dict[str, torch.Tensor]]:
    """Write the files of earlier steps that a config names, as these steps would leave them.

    Returns:
        The random weights that were written, by file.
    """
    given = {}
    wanted = {text for text in strings(cfg.to_dict()) if text.startswith('work_dirs/') and Path(text).suffix}
    for text in sorted(wanted, key=lambda text: (Path(text).suffix != '.json', text)):  # weights are of architectures
        source, path = source_of(text), Path(text)
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == '.json':
            assert is_search(source) or is_space_search(source), f'{path.parts[1]} searches nothing, so {text} is none'
            space = zoo.load_space(source.model.backbone.space)
            path.write_text((space if path.name == 'space.json' else space.smallest()).to_json())
            continue
        if epoch := re.fullmatch(r'epoch_(\d+)', path.stem):
            assert int(epoch[1]) == source.train_cfg.max_epochs, f'{text} is not the last checkpoint'
        if path.suffix == '.safetensors':  # what tools/extract_subnet.py leaves
            given[path] = build(source, zoo.load_space(source.model.backbone.space).smallest()).state_dict()
            safetensors.torch.save_file(given[path], path)
        else:
            given[path] = build(source).state_dict()
            torch.save(dict(state_dict=given[path], meta=dict(), **learned_sampler(source)), path)
    return given


def learned_sampler(cfg: Config) -> dict[str, Any]:
    """What a checkpoint holds of the sampler of its training."""
    if 'sampler' not in cfg.train_cfg:
        return {}
    sampler: ArchSampler = ARCH_SAMPLERS.build(cfg.train_cfg.sampler)
    backbone = backbone_of(cfg.model)
    sampler.bind(backbone.space, pricer(cfg, backbone.price), 0)
    return {SAMPLER: sampler.state_dict()} if sampler.state_dict() else {}


def build(cfg: Config, arch: Any = None) -> torch.nn.Module:
    """A config's model, of a supernet also one architecture alone."""
    init_default_scope(cfg.get('default_scope'))
    model = model_config(cfg)
    return MODELS.build(model if arch is None else fixed_config(model, arch))


# a small run


def shrink_search(loop: dict[str, Any]) -> None:
    name = loop['type'].rpartition('.')[2]
    if name not in SMALL_SEARCH:
        pytest.fail(f'no test knows {name}: add its smallest search to SMALL_SEARCH')
    loop.update(SMALL_SEARCH[name])


def shrink(cfg: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of two images of a tiny set in this process, one epoch or iteration; everything else stays.

    But for bfloat16, which a CPU without it emulates, ten times slower than float32.
    """
    for part in ('train', 'val', 'test'):
        loader = cfg.get(f'{part}_dataloader')
        if not loader:
            continue
        size = 2 if part == 'train' else min(2, loader.batch_size)  # a segmentor tests images of one size only
        loader.update(batch_size=size, num_workers=0, persistent_workers=False)
        for dataset in datasets_of(loader.dataset):
            make_tiny(dataset, monkeypatch)
            if dataset is loader.dataset:
                dataset.indices = 2
        if loader.dataset.get('per_class'):
            loader.dataset.per_class = 1
    if is_search(cfg):
        shrink_search(cfg.train_cfg)
    else:
        cfg.train_cfg.update({name: 1 for name in ('max_epochs', 'max_iters') if cfg.train_cfg.get(name)})
    if is_space_search(cfg):
        cfg.space_search.update(iterations=1, num_samples=2)
        shrink_search(cfg.space_search.search)
    for hook in sampler_hooks(cfg):
        hook.update(interval=1, iterations=1)
    for hook in cfg.get('custom_hooks') or []:
        if hook['type'] == 'vitnas.RecalibrateHook':
            hook.update(dataloader=cfg.val_dataloader, num_batches=1)
    if teacher := cfg.train_cfg.get('rule', {}).get('teacher'):  # its weights are not at hand
        if teacher.get('input_size'):
            teacher.input_size //= 4
        models = teacher.models
        for teacher in models if isinstance(models, list) else [models]:
            teacher.update(dict(pretrained=False) if 'pretrained' in teacher else dict(init_cfg=None))
    if cfg.optim_wrapper.get('type') == 'vitnas.BFloat16OptimWrapper':
        cfg.optim_wrapper.type = 'OptimWrapper'
    cfg.default_hooks.logger.interval = 1


def check_loaded(weights: dict[str, torch.Tensor], trained: dict[str, torch.Tensor], path: Path) -> None:
    """Weights are those of a file: a step moves them a little, and other image sizes have other positions.

    What a batch norm has seen follows the images.
    """
    for name, weight in weights.items():
        if name.endswith(('running_mean', 'running_var', 'num_batches_tracked')):
            continue
        if weight.shape == trained[name].shape or not name.endswith(('pos_embed', 'attn.bias.tables.shared')):
            assert torch.allclose(trained[name], weight, atol=1e-3), f'{name} is not the one of {path}'


def check_schedule_ends(cfg: Config) -> None:
    """The learning rate's schedule is as long as the training; a warm-up may be counted in iterations."""
    epochs = cfg.train_cfg.get('max_epochs')
    length = epochs or cfg.train_cfg.get('max_iters')
    schedulers = [one for one in cfg.get('param_scheduler') or [] if one.get('by_epoch', True) == bool(epochs)]
    ends = [scheduler.get('end', length) for scheduler in schedulers]
    assert not ends or max(ends) == length
