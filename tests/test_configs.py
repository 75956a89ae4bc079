"""Every config of the repository is parsed, built and run for a step on tiny data, from the day it is added."""

from __future__ import annotations

import functools
import re
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from mmengine.config import Config
from mmengine.registry import init_default_scope
from mmpretrain.registry import MODELS

from vitnas_core import zoo
from vitnas_core.datasets.checks import check_not_test_set
from vitnas_core.launch import make_runner, read_config
from vitnas_core.models import fill_channels, fixed_config
from vitnas_core.registry import ARCH_SAMPLERS, LOOPS
from vitnas_core.search import SearchLoop, SpaceSearch
from vitnas_core.spaces import Arch
from vitnas_core.training.samplers import ArchSampler
from vitnas_core.training.samplers.base import SAMPLER

from .tiny_sets import datasets_of, make_tiny, set_name

ROOT = Path(__file__).resolve().parent.parent
FRAGMENTS = sorted((ROOT / 'configs').rglob('*.py'))
CONFIGS = {path.stem: path for path in sorted((ROOT / 'projects').glob('*/configs/**/*.py'))}
SEARCHES = sorted(stem for stem in CONFIGS if '_search_' in stem)
CLASSIFICATION = sorted(stem for stem, path in CONFIGS.items() if 'classification' in path.parts)

# DESIGN: {method}-{size}_{stage}_{setting}_{dataset}.py, parts joined by _, words inside a part by -.
NAME = re.compile(
    r'(?P<method>[a-z0-9]+(-[a-z0-9]+)*)_(?P<stage>space|supernet|sampler|search|retrain|finetune)'
    r'_(?P<setting>[a-z0-9.]+(-[a-z0-9.]+)*)_(?P<dataset>[a-z0-9]+(-[a-z0-9]+)*)'
)
SETTING = re.compile(r'((?P<gpus>\d+)xb(?P<batch>\d+)-)?((?P<epochs>\d+)e|(?P<iters>\d+)i)')
DATASETS = {'imagenet': 'ImageNet', 'cifar100': 'CIFAR100', 'digits': 'Digits', 'fashion': 'FashionMNIST'}

# The smallest search of each kind: two candidates.
SMALL_SEARCH: dict[str, dict[str, Any]] = {
    'EvolutionSearchLoop': dict(population=2, parents=1, generations=1, mutations=1, crossovers=1),
    'SamplerSearchLoop': dict(num_candidates=2),
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


def loop_type(cfg: Config) -> str:
    return cfg.train_cfg.get('type', 'EpochBasedTrainLoop').rpartition('.')[2]


def sampler_hooks(cfg: Config) -> list[dict[str, Any]]:
    return [hook for hook in cfg.get('custom_hooks') or [] if hook['type'] == 'vitnas.SamplerTrainHook']


def is_search(cfg: Config) -> bool:
    return issubclass(LOOPS.get(cfg.train_cfg.get('type', 'EpochBasedTrainLoop')), SearchLoop)


def is_space_search(cfg: Config) -> bool:
    return cfg.get('runner_type') == 'vitnas.SpaceSearch'


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
    wanted = sorted({text for text in strings(cfg.to_dict()) if text.startswith('work_dirs/') and Path(text).suffix})
    for text in wanted:
        source, path = source_of(text), Path(text)
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == '.json':
            assert is_search(source) or is_space_search(source), f'{path.parts[1]} searches nothing, so {text} is none'
            space = zoo.load_space(source.model.backbone.space)
            path.write_text((space if path.name == 'space.json' else space.smallest()).to_json())
            continue
        if epoch := re.fullmatch(r'epoch_(\d+)', path.stem):
            assert int(epoch[1]) == source.train_cfg.max_epochs, f'{text} is not the last checkpoint'
        whole = source.model.backbone.get('arch') or cfg.model.backbone.get('space')
        weights = build(fill_channels(source.model) if whole else smallest_model(source)).state_dict()
        given[path] = weights
        if path.suffix == '.safetensors':
            safetensors.torch.save_file(weights, path)
        else:
            torch.save(dict(state_dict=weights, meta=dict(), **learned_sampler(source)), path)
    return given


def smallest_model(cfg: Config) -> Any:
    """The config of a supernet's smallest architecture alone."""
    return fixed_config(cfg.model, zoo.load_space(cfg.model.backbone.space).smallest())


def learned_sampler(cfg: Config) -> dict[str, Any]:
    """What a checkpoint holds of the sampler of its training."""
    if 'sampler' not in cfg.train_cfg:
        return {}
    sampler: ArchSampler = ARCH_SAMPLERS.build(cfg.train_cfg.sampler)
    backbone = build(cfg.model.backbone)
    sampler.bind(backbone.space, backbone.price, 0)
    return {SAMPLER: sampler.state_dict()} if sampler.state_dict() else {}


def build(model_cfg: Any) -> torch.nn.Module:
    init_default_scope('mmpretrain')
    return MODELS.build(model_cfg)


def shrink_search(loop: dict[str, Any]) -> None:
    name = loop['type'].rpartition('.')[2]
    if name not in SMALL_SEARCH:
        pytest.fail(f'no test knows {name}: add its smallest search to SMALL_SEARCH')
    loop.update(SMALL_SEARCH[name])


def shrink(cfg: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of two images of a tiny set in this process, one epoch, no checkpoint; everything else stays.

    But for bfloat16, which a CPU without it emulates, ten times slower than float32.
    """
    for loader in filter(None, (cfg.get(f'{part}_dataloader') for part in ('train', 'val', 'test'))):
        loader.update(batch_size=2, num_workers=0, persistent_workers=False)
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
    if cfg.optim_wrapper.get('type') == 'vitnas.BFloat16OptimWrapper':
        cfg.optim_wrapper.type = 'OptimWrapper'
    if not is_space_search(cfg):  # which hands its supernets on
        cfg.default_hooks.checkpoint = None
    cfg.default_hooks.logger.interval = 1


@pytest.mark.parametrize('path', FRAGMENTS, ids=lambda path: str(path.relative_to(ROOT / 'configs')))
def test_fragment(path: Path) -> None:
    cfg = Config.fromfile(path)
    assert len(cfg) and path.read_text().startswith('"""')


@pytest.mark.parametrize('stem', CONFIGS)
def test_runs(stem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # data/ and work_dirs/ of the configs are relative
    given = provide_files(parsed(stem))
    cfg = read_config(Namespace(config=str(CONFIGS[stem]), cfg_options={}, launcher='none', work_dir='work_dirs/run'))
    shrink(cfg, monkeypatch)
    cfg.experiment_name = stem
    runner = make_runner(cfg)
    if is_space_search(cfg):
        check_space_search(runner)
        return
    before = {name: weight.detach().clone() for name, weight in runner.model.named_parameters()}
    runner.train()
    if is_search(cfg):
        best = Arch.from_json(Path('work_dirs/run/best_arch.json').read_text())
        assert runner.train_loop.constraint.met(runner.train_loop.price(best))
    elif loop_type(cfg) == 'SamplerTrainLoop':
        assert runner.train_loop.sampler.training.iterations == 1
    else:
        losses = runner.message_hub.get_scalar('train/loss').data[0]
        assert len(losses) and torch.isfinite(torch.as_tensor(losses)).all()
        assert any(not torch.equal(before[name], weight) for name, weight in runner.model.named_parameters())
        assert not sampler_hooks(cfg) or runner.train_loop.sampler.training.iterations == 1
        assert runner.message_hub.log_scalars.keys() >= {'val/accuracy/top1'}
        if cfg.test_dataloader != cfg.val_dataloader:
            assert 0 <= runner.test()['accuracy/top1'] <= 100
    for path, weights in given.items():
        trained = runner.model.state_dict()
        assert trained.keys() == weights.keys()
        for name, weight in weights.items():  # one step moves them a little; other image sizes have other positions
            if weight.shape == trained[name].shape or not name.endswith(('pos_embed', 'attn.bias.tables.shared')):
                assert torch.allclose(trained[name], weight, atol=1e-3), f'{name} is not the one of {path}'
        path.unlink()  # pytest keeps the folders of its last runs


def check_space_search(search: SpaceSearch) -> None:
    """Run it; every space and the winner are there, and the images that decide are neither trained nor tested on."""
    cfg, last = search.cfg, search.train()
    check_not_test_set(cfg.val_dataloader, cfg.test_dataloader, 'val_dataloader')
    assert (cfg.train_dataloader.dataset.part, cfg.val_dataloader.dataset.part) == ('train', 'holdout')
    folder = Path(cfg.work_dir)
    assert zoo.load_space(folder / 'step_1/space.json') == last
    best = Arch.from_json((folder / 'step_1/search/best_arch.json').read_text())
    assert best in last
    assert (folder / 'report.html').is_file()


@pytest.mark.parametrize('stem', SEARCHES)
def test_search_sees_neither_test_nor_training_images(stem: str) -> None:
    cfg = parsed(stem)
    check_not_test_set(cfg.train_dataloader, cfg.test_dataloader, stem)
    searched = cfg.train_dataloader.dataset
    assert searched.type == 'vitnas.HoldOut' and searched.part == 'holdout'
    supernet = source_of(cfg.load_from)
    trained = supernet.train_dataloader.dataset
    assert trained.type == 'vitnas.HoldOut' and trained.part == 'train'
    read = ('pipeline',)  # how images are read; everything else decides the split
    one, two = (
        {**wrapper.to_dict(), 'part': '', 'dataset': {k: v for k, v in wrapper.dataset.items() if k not in read}}
        for wrapper in (searched, trained)
    )
    assert one == two
    assert cfg.model == supernet.model


@pytest.mark.parametrize('stem', CLASSIFICATION)
def test_name_says_what_the_config_does(stem: str) -> None:
    name = NAME.fullmatch(stem)
    assert name, f'{stem} should be METHOD-SIZE_STAGE_SETTING_DATASET, see "Config names" in the design'
    cfg = parsed(stem)
    found = {set_name(dataset) for dataset in datasets_of(cfg.train_dataloader.dataset)}
    assert found == {DATASETS[name['dataset'].partition('-')[0]]}
    stage, backbone = name['stage'], cfg.model.backbone
    assert is_search(cfg) == (stage == 'search')
    assert (loop_type(cfg) == 'SupernetTrainLoop') == (stage in ('supernet', 'space'))
    assert is_space_search(cfg) == (stage == 'space')
    assert (loop_type(cfg) == 'SamplerTrainLoop') == (stage == 'sampler')
    searched = stage in ('space', 'supernet', 'sampler', 'search')
    assert bool(backbone.get('space')) == searched != bool(backbone.get('arch'))
    assert bool(cfg.get('load_from')) == (stage in ('sampler', 'search', 'finetune'))
    assert cfg.get('find_unused_parameters', False) or stage != 'supernet'
    if stage != 'search':
        setting = SETTING.fullmatch(name['setting'])
        assert setting, f'the setting {name["setting"]} of {stem} should be like 8xb128-500e, 20e or 360i'
        length = cfg.train_cfg.max_epochs if setting['epochs'] else cfg.train_cfg.max_iters
        assert int(setting['epochs'] or setting['iters']) == length
        if setting['batch']:
            assert int(setting['batch']) == cfg.train_dataloader.batch_size
            assert int(setting['gpus']) * int(setting['batch']) == cfg.auto_scale_lr.base_batch_size


@pytest.mark.parametrize('stem', CONFIGS)
def test_schedule_ends_with_the_training(stem: str) -> None:
    cfg = parsed(stem)
    length = cfg.train_cfg.get('max_epochs') or cfg.train_cfg.get('max_iters')
    ends = [scheduler.get('end', length) for scheduler in cfg.get('param_scheduler') or []]
    assert not ends or max(ends) == length
