"""Every config is parsed; those of classification are also built and run for a step on tiny data.

Configs of detection and segmentation run in ``test_dense_configs.py``.
"""

from __future__ import annotations

import copy
import inspect
import re
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.dataset import Compose
from mmengine.registry import TRANSFORMS, init_default_scope

from vitnas_core import zoo
from vitnas_core.auto import elastic_class
from vitnas_core.datasets.checks import check_not_test_set
from vitnas_core.launch import make_runner, read_config
from vitnas_core.search import SpaceSearch
from vitnas_core.spaces import Arch

from .config_files import (
    CLASSIFICATION,
    CONFIGS,
    ROOT,
    check_loaded,
    check_schedule_ends,
    is_search,
    is_space_search,
    loop_type,
    parsed,
    provide_files,
    sampler_hooks,
    shrink,
    source_of,
)
from .tiny_sets import datasets_of, set_name

FRAGMENTS = sorted((ROOT / 'configs').rglob('*.py'))
PARTS = ('train', 'val', 'test')
SEARCHES = sorted(stem for stem in CONFIGS if '_search_' in stem)

# DESIGN: {method}-{size}_{stage}_{setting}_{dataset}.py, parts joined by _, words inside a part by -.
NAME = re.compile(
    r'(?P<method>[a-z0-9]+(-[a-z0-9]+)*)_(?P<stage>space|supernet|sampler|search|retrain|finetune)'
    r'_(?P<setting>[a-z0-9.]+(-[a-z0-9.]+)*)_(?P<dataset>[a-z0-9]+(-[a-z0-9]+)*)'
)
SETTING = re.compile(r'((?P<gpus>\d+)xb(?P<batch>\d+)-)?((?P<epochs>\d+)e|(?P<iters>\d+)i)')
DATASETS = {
    'imagenet': 'ImageNet',
    'cifar100': 'CIFAR100',
    'digits': 'Digits',
    'drawn': 'Digits',
    'fashion': 'FashionMNIST',
}


@pytest.mark.parametrize('path', FRAGMENTS, ids=lambda path: str(path.relative_to(ROOT / 'configs')))
def test_fragment(path: Path) -> None:
    cfg = Config.fromfile(path)
    assert len(cfg) and path.read_text().startswith('"""')


def test_every_operation_of_an_augmentation_takes_grey_images() -> None:
    """RandAugment draws one for each image: a step on a few images does not meet all of them."""
    init_default_scope('mmpretrain')
    pipeline = parsed('nasvit-micro_supernet_6e_fashion-mnist').train_dataloader.dataset.dataset.pipeline
    (augment,) = (step for step in pipeline if step['type'] == 'RandAugment')
    augment['num_policies'] = 40  # of 15
    transform = Compose([TRANSFORMS.build(step) for step in pipeline])
    image = np.random.default_rng(0).integers(256, size=(28, 28), dtype=np.uint8)
    for _ in range(5):
        assert transform(dict(img=image.copy(), gt_label=0))['inputs'].shape == (3, 28, 28)


def image_steps(cfg: Config, part: str) -> list[dict[str, Any]]:
    """The transforms of a dataloader that make images one size."""
    datasets = datasets_of((cfg.get(f'{part}_dataloader') or {}).get('dataset'))
    steps = [step for dataset in datasets for step in dataset.get('pipeline') or []]
    return [step for step in steps if isinstance(step.get('scale', step.get('crop_size')), int)]


def counts_on_its_size(cfg: Config) -> bool:
    """Whether labels of tokens, or a hook that makes images grow, need the size that the config says."""
    hooks = [hook['type'] for hook in cfg.get('custom_hooks') or []]
    return 'vitnas.ProgressiveLearningHook' in hooks or 'token_mix' in str(cfg.get('data_preprocessor'))


def halve_images(cfg: Config) -> None:
    """Large images half as large: everything runs as it would."""
    for step in [] if counts_on_its_size(cfg) else [s for part in PARTS for s in image_steps(cfg, part)]:
        for key in {'scale', 'crop_size'} & step.keys():
            step[key] = step[key] // 2 if step[key] > 112 else step[key]


# Others have weights for any size, or resize by themselves.
OF_ONE_SIZE = [stem for stem in CLASSIFICATION if 'imagenet' in stem and not stem.startswith(('nasvit', 'vitas-twins'))]


@pytest.mark.parametrize('stem', OF_ONE_SIZE)
def test_images_have_the_size_that_the_backbone_is_for(stem: str) -> None:
    cfg = parsed(stem)
    backbone = cfg.model.backbone
    default = inspect.signature(elastic_class(backbone.type)).parameters['img_size'].default
    sides = {step.get('crop_size', step.get('scale')) for step in image_steps(cfg, 'test')[-1:]}
    assert sides == {backbone.get('img_size', default)}


@pytest.mark.parametrize('stem', CLASSIFICATION)
def test_runs(stem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # data/ and work_dirs/ of the configs are relative
    given = provide_files(parsed(stem))
    cfg = read_config(Namespace(config=str(CONFIGS[stem]), cfg_options={}, launcher='none', work_dir='work_dirs/run'))
    shrink(cfg, monkeypatch)
    halve_images(cfg)
    if not is_space_search(cfg):  # which hands its supernets on
        cfg.default_hooks.checkpoint = None
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
        check_loaded(weights, trained, path)
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
    trained, searched = (copy.deepcopy(one.model) for one in (supernet, cfg))
    for model in (trained, searched):
        model.backbone.pop('init_cfg', None)  # of weights to begin with; a search loads the supernet's
    assert trained == searched


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


@pytest.mark.parametrize('stem', CLASSIFICATION)
def test_schedule_ends_with_the_training(stem: str) -> None:
    check_schedule_ends(parsed(stem))
