"""Every config of detection and segmentation is parsed, built, trained and tested on tiny data.

The first config of a kind (a detector or a segmentor, a family of backbones, a dataset) is also resumed and runs in
bfloat16, and its gradients are checked. Others of the kind, such as larger sizes, differ only in numbers.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from mmengine.config import Config, config
from mmengine.model import convert_sync_batchnorm
from mmengine.optim import build_optim_wrapper
from mmengine.runner import Runner
from torch import nn

from tools import train
from vitnas_core.auto import elastic_class
from vitnas_core.backbones import elastic_backbone
from vitnas_core.backbones.depths import position_weights
from vitnas_core.backbones.mixed import Mixture
from vitnas_core.backbones.pretrained import cut_to_shape
from vitnas_core.elastic import SwitchableScale
from vitnas_core.model_configs import backbone_of
from vitnas_core.registry import MODELS
from vitnas_core.spaces import Arch
from vitnas_core.training import BFloat16OptimWrapper

from .config_files import (
    CONFIGS,
    DENSE,
    ROOT,
    build,
    check_loaded,
    check_schedule_ends,
    is_search,
    parsed,
    provide_files,
    shrink,
    source_of,
    strings,
)
from .tiny_sets import datasets_of, set_name

SIDE = 64
"""The shorter side of the images; twice that where a map would have one row, as a token alone attends to nothing."""
FAST_BFLOAT16 = getattr(torch.cpu, '_is_avx512_bf16_supported', bool)()
"""Whether bfloat16 is computed, not emulated; else only configs that stand on a toolbox's own run in it."""
FEW = dict(num=16, nms_pre=50, max_per_img=10)
"""Boxes that are sampled, and kept before and behind the suppression."""

# As mmdet and mmseg name them; a supernet and a search in it say so in place of the neck.
WORDS = r'[a-z0-9.]+(-[a-z0-9.]+)*'
NAMES = {
    'detection': re.compile(
        rf'(?P<method>{WORDS})_(?P<backbone>{WORDS})_(?P<part>{WORDS})_(?P<schedule>{WORDS})_(?P<dataset>[a-z0-9]+)'
    ),
    'segmentation': re.compile(
        rf'(?P<backbone>{WORDS})_(?P<method>{WORDS})(_(?P<part>supernet|search))?_(?P<schedule>{WORDS})'
        r'_(?P<dataset>[a-z0-9]+)-(?P<crop>\d+x\d+)'
    ),
}
SCHEDULE = re.compile(r'(?P<times>\d+)x|((?P<gpus>\d+)xb(?P<batch>\d+)-)?((?P<epochs>\d+)e|(?P<thousands>\d+)k)')
DATASETS = {
    'coco': 'CocoDataset',
    'ade20k': 'ADE20KDataset',
    'cityscapes': 'CityscapesDataset',
    'scenes': 'Scenes',
}
METHODS = {
    'mask-rcnn': 'MaskRCNN',
    'cascade-mask-rcnn': 'CascadeRCNN',
    'retinanet': 'RetinaNet',
    'upernet': 'UPerHead',
    'fpn': 'FPNHead',
    'segformer': 'SegformerHead',
}
NETWORKS = {'vitresnas': 'vitres', 'twinssvt': 'vitastwins'}
NECKS = {'fpn': 'FPN', 'simple-fpn': 'SimpleFeaturePyramid'}

# Of the papers, on COCO and ADE20K: Swin's for Cascade and UperNet, SegFormer's for its head, Twins' for the others.
RECIPES: dict[str, dict[str, Any]] = {
    'mask-rcnn': dict(lr=2e-4, weight_decay=1e-4, warm_up=500, batch_size=2, drop_path={0.2}),
    'retinanet': dict(lr=1e-4, weight_decay=1e-4, warm_up=500, batch_size=2, drop_path={0.2}),
    'cascade-mask-rcnn': dict(lr=1e-4, weight_decay=0.05, warm_up=1000, batch_size=2, drop_path={0.0, 0.2, 0.3}),
    'upernet': dict(lr=6e-5, weight_decay=0.01, warm_up=1500, batch_size=2, drop_path={0.2, 0.3}),
    'fpn': dict(lr=1e-4, weight_decay=1e-4, warm_up=0, batch_size=4, drop_path={0.2, 0.4}),
    'segformer': dict(lr=6e-5, weight_decay=0.01, warm_up=1500, batch_size=2, drop_path={0.1}),
}
SET_RECIPES: dict[str, dict[str, Any]] = {'cityscapes': dict(batch_size=1)}
"""What is different on a dataset, here because its crops are four times as large."""
MILESTONES = {12: [8, 11], 36: [27, 33]}


# which configs are the first of their kind, told from names and files: to parse all takes long


def task(stem: str) -> str:
    return CONFIGS[stem].relative_to(ROOT / 'projects').parts[0]


def named(stem: str) -> re.Match[str] | None:
    return NAMES[task(stem)].fullmatch(stem)


def kind(stem: str) -> tuple[str, ...]:
    """Configs that differ only in numbers: sizes of a family and lengths of a schedule."""
    name = named(stem)
    if name is None:
        return (stem,)
    family = name['backbone'].rpartition('-')[0]
    return name['method'], family, name['part'] or '', name['dataset']


def depth(path: Path) -> int:
    """How many of our configs a config is a change of, one of the other."""
    base = re.search(r"^_base_ = '(\.[^']+)'", path.read_text(), re.MULTILINE) if path.is_file() else None
    return 1 + depth((path.parent / base[1]).resolve()) if base else 0


def firsts() -> list[str]:
    found: dict[tuple[str, ...], str] = {}
    for stem in sorted(DENSE, key=lambda stem: (depth(CONFIGS[stem]), stem)):
        found.setdefault(kind(stem), stem)
    return sorted(found.values())


SEARCHES = [stem for stem in DENSE if '_search_' in stem]
FIRSTS = [stem for stem in firsts() if stem not in SEARCHES]
OTHERS = [stem for stem in DENSE if stem not in (*FIRSTS, *SEARCHES)]


# a small run


def dicts(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        yield node
        node = list(node.values())
    if isinstance(node, (list, tuple)):
        for child in node:
            yield from dicts(child)


def smaller(size: Any, factor: float) -> tuple[int, int]:
    """Two sides of an image; never a square."""
    one, two = (round(factor * side) for side in size)
    return (one, 3 * one // 2) if one == two else (one, two)


def shrink_images(cfg: Config) -> None:
    """Resize large images of every pipeline to about 64 × 96, or 128 × 192."""
    pipelines = [
        dataset['pipeline']
        for part in ('train', 'val', 'test')
        for dataset in datasets_of((cfg.get(f'{part}_dataloader') or {}).get('dataset'))
    ]
    steps = list(dicts(pipelines))
    scales = [scale for step in steps for scale in (*step.get('scales', ()), step.get('scale')) if scale]
    side = SIDE if max(backbone_of(cfg.model).out_strides()) < SIDE else 2 * SIDE
    factor = side / max(min(scale) for scale in scales)
    if factor > 0.5:  # the scenes are small
        return
    for step in steps:
        for key in ('scale', 'crop_size'):
            if key in step:
                step[key] = smaller(step[key], factor)
        if 'scales' in step:
            step['scales'] = [smaller(scale, factor) for scale in step['scales']]
    if 'size' in cfg.model.data_preprocessor:
        cfg.model.data_preprocessor.size = smaller(cfg.model.data_preprocessor.size, factor)
    for key in ('crop_size', 'stride'):  # of windows that slide over test images
        if key in cfg.model.test_cfg:
            cfg.model.test_cfg[key] = smaller(cfg.model.test_cfg[key], factor)


def shrink_boxes(cfg: Config) -> None:
    """Few boxes; an untrained detector's count too, as a metric of none is none."""
    for node in dicts([cfg.model.get('train_cfg'), cfg.model.get('test_cfg')]):
        node.update({key: min(most, node[key]) for key, most in FEW.items() if isinstance(node.get(key), int)})
        if 'score_thr' in node:
            node['score_thr'] = 0.0


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """``data/`` and ``work_dirs/`` of the configs are here; checkpoints of detectors are large, so nothing is kept."""
    monkeypatch.chdir(tmp_path)
    # A run writes its config several times, and takes longer to break its lines than to train.
    monkeypatch.setattr(config, 'FormatCode', lambda text, **_: (text, True))
    yield tmp_path
    shutil.rmtree(tmp_path, ignore_errors=True)


def provide(stem: str) -> dict[Path, dict[str, torch.Tensor]]:
    """The files of earlier steps; their weights, of those that are loaded."""
    cfg = parsed(stem)
    loaded = set(strings([cfg.model, cfg.get('load_from')]))
    return {path: weights for path, weights in provide_files(cfg).items() if str(path) in loaded}


def write_small(stem: str, folder: Path, monkeypatch: pytest.MonkeyPatch, checkpoints: bool = False) -> str:
    """The file of a small run of a config."""
    cfg = Config(parsed(stem).to_dict())
    shrink(cfg, monkeypatch)
    shrink_images(cfg)
    shrink_boxes(cfg)
    if not checkpoints:
        cfg.default_hooks.checkpoint = None
    cfg.visualizer.pop('name', None)  # with one, the next test would get this one
    cfg.randomness = dict(seed=0)
    cfg.log_level = 'WARNING'
    path = folder / f'{stem}.py'
    cfg.dump(path)
    return str(path)


def run(path: str, *more: str, **options: Any) -> Runner:
    """What ``tools/train.py`` does; each run has a name of its own, or it would find the logs of the one before."""
    options['experiment_name'] = f'{Path(path).stem}{"".join(more)}'
    values = [f'{key}={value}' for key, value in options.items()]
    return train.main([path, '--work-dir', 'work_dirs/run', *more, '--cfg-options', *values])


def check_trained(runner: Runner) -> None:
    """Losses are finite and what was predicted is measured."""
    scalars = runner.message_hub.log_scalars
    losses = [name for name in scalars if name.startswith('train/') and 'loss' in name]
    assert 'train/loss' in losses
    for name in losses:
        assert torch.isfinite(torch.as_tensor(scalars[name].data[0])).all(), name
    evaluator = runner.cfg.val_evaluator
    metrics = ['mIoU'] if evaluator.type == 'IoUMetric' else [f'coco/{part}_mAP' for part in metric_parts(evaluator)]
    for name in metrics:
        assert scalars[f'val/{name}'].current() >= 0, name
    assert {parameter.dtype for parameter in runner.model.parameters()} == {torch.float32}


def metric_parts(evaluator: Any) -> list[str]:
    return [evaluator.metric] if isinstance(evaluator.metric, str) else list(evaluator.metric)


def check_given(runner: Runner, given: dict[Path, dict[str, torch.Tensor]]) -> None:
    """The backbone began with the weights of the files that the config names, a part of a supernet's with its part."""
    backbone = elastic_backbone(runner.model)
    trained = {name: w for name, w in backbone.state_dict().items() if not name.startswith(backbone.output_weights)}
    for path, weights in given.items():
        own = {name.removeprefix('backbone.'): w for name, w in weights.items() if name.startswith('backbone.')}
        check_loaded(cut_to_shape(own, trained), trained, path)


def check_gradients(runner: Runner) -> None:
    """A gradient reaches every weight of the backbone; as in a test, where no path is dropped."""
    model = runner.model.eval()
    backbone = elastic_backbone(model)
    backbone.set_arch(backbone.space.largest())
    for module in backbone.modules():  # a gain that begins at 0 is still there if its path was dropped so far
        if isinstance(module, nn.BatchNorm2d) and not module.weight.any():
            nn.init.ones_(module.weight)
    data = model.data_preprocessor(next(iter(runner.train_dataloader)), training=True)
    shapes = [tuple(sample.img_shape[:2]) for sample in data['data_samples']]
    assert all(height != width for height, width in shapes)
    if runner.cfg.data_root == 'data/coco/':  # scenes are of one size, segmentors pad to one
        assert len(set(shapes)) == 2
    model.parse_losses(model(**data, mode='loss'))[0].backward()
    trained = {name: p.grad for name, p in backbone.named_parameters() if p.requires_grad}
    assert trained and not [name for name, grad in trained.items() if grad is None or not grad.any()]


@pytest.mark.parametrize('stem', FIRSTS)
def test_trains_and_resumes_in_bfloat16(stem: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = provide(stem)
    path = write_small(stem, folder, monkeypatch, checkpoints=True)
    runner = run(path)
    check_trained(runner)
    check_given(runner, given)
    by_epoch = 'max_epochs' in runner.cfg.train_cfg
    assert (folder / 'work_dirs/run' / ('epoch_1.pth' if by_epoch else 'iter_1.pth')).is_file()
    steps = runner.iter
    assert steps > 0

    options = {'train_cfg.max_epochs' if by_epoch else 'train_cfg.max_iters': 2, 'default_hooks.checkpoint': None}
    bfloat16 = FAST_BFLOAT16 or depth(CONFIGS[stem]) == 0
    if bfloat16:
        options['optim_wrapper.type'] = 'vitnas.BFloat16OptimWrapper'
    runner = run(path, '--resume', **options)
    check_trained(runner)
    assert isinstance(runner.optim_wrapper, BFloat16OptimWrapper) == bfloat16
    assert runner.iter == 2 * steps and (runner.epoch == 2 or not by_epoch)
    taken = {int(state['step']) for state in runner.optim_wrapper.optimizer.state.values()}
    assert taken == {2 * steps}  # what the optimizer knew was resumed, too
    check_gradients(runner)


@pytest.mark.parametrize('stem', OTHERS)
def test_trains(stem: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = provide(stem)
    runner = run(write_small(stem, folder, monkeypatch))
    check_trained(runner)
    check_given(runner, given)


@pytest.mark.parametrize('way', ['sliced', 'masked'])
def test_architectures_share_the_images_of_a_detector(way: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stem = 'mask-rcnn_s3-micro_supernet_8e_scenes'
    provide(stem)
    path = Path(write_small(stem, folder, monkeypatch))
    cfg = Config.fromfile(path)
    cfg.train_cfg.sampler = dict(type='vitnas.MultiArchSampler', num_archs=2)
    cfg.train_cfg.rule = dict(type='vitnas.MultiArch', way=way)
    cfg.dump(path)
    ran: list[bool] = []
    real = Mixture.sliced
    monkeypatch.setattr(Mixture, 'sliced', lambda *args: ran.append(real(*args)) or ran[-1])
    check_trained(run(str(path)))
    assert ran and set(ran) == {way == 'sliced'}


@pytest.mark.parametrize('stem', SEARCHES)
def test_searches(stem: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = provide(stem)
    loop = run(write_small(stem, folder, monkeypatch)).train_loop
    best = Arch.from_json((folder / 'work_dirs/run/best_arch.json').read_text())
    assert best in loop.space and loop.constraint.met(loop.price(best))
    assert all(candidate.score >= 0 for candidate in loop.history)
    [weights] = given.values()
    trained = loop.runner.model.state_dict()
    assert trained.keys() == weights.keys() and all(torch.equal(trained[name], weights[name]) for name in weights)


# names and recipes


def words(kind: Any) -> str:
    """The name of a type without its scope."""
    return str(kind).rpartition('.')[2]


@pytest.mark.parametrize('stem', DENSE)
def test_name_says_what_the_config_does(stem: str) -> None:
    name, cfg = named(stem), parsed(stem)
    assert name, f'{stem} should be named as in mmdet or mmseg, e.g. {FIRSTS[0]}'
    model, backbone = cfg.model, cfg.model.backbone
    found = {set_name(dataset) for dataset in datasets_of(cfg.train_dataloader.dataset)}
    assert found == {DATASETS[name['dataset']]}
    head = model.type if task(stem) == 'detection' else model.decode_head.type
    assert words(head) == METHODS[name['method']]
    assert ('mask_head' in model.get('roi_head', {})) == ('mask' in name['method'])
    method = name['backbone'].rpartition('-')[0].replace('-', '')
    assert elastic_class(backbone.type) is not None and words(backbone.type).lower() == NETWORKS.get(method, method)
    stage = name['part'] if name['part'] in ('supernet', 'search') else None
    assert bool(backbone.get('space')) == bool(stage) != bool(backbone.get('arch'))
    assert is_search(cfg) == (stage == 'search')
    if not stage and not str(backbone.arch).endswith('.json'):
        assert backbone.arch == name['backbone']
    if name['part'] and not stage:
        assert words(model.neck.type) == NECKS[name['part']]
    if task(stem) == 'segmentation':
        assert name['crop'] == '{}x{}'.format(*model.data_preprocessor.size)
    if stage != 'search':
        check_schedule(name['schedule'], cfg)


def check_schedule(text: str, cfg: Config) -> None:
    """The length in a name is that of the training, and the learning rate falls to its end."""
    schedule = SCHEDULE.fullmatch(text)
    assert schedule, f'the schedule {text} should be like 1x, 8xb2-160k or 12e'
    if schedule['thousands']:
        assert cfg.train_cfg.max_iters == 1000 * int(schedule['thousands'])
    else:
        assert cfg.train_cfg.max_epochs == int(schedule['epochs'] or 12 * int(schedule['times']))
    if schedule['batch']:
        assert cfg.train_dataloader.batch_size == int(schedule['batch'])
        total = int(schedule['gpus']) * int(schedule['batch'])
        assert cfg.get('auto_scale_lr', {}).get('base_batch_size', total) == total
    check_schedule_ends(cfg)


@pytest.mark.parametrize('stem', [stem for stem in DENSE if 'scenes' not in stem])
def test_recipe(stem: str) -> None:
    name, cfg = named(stem), parsed(stem)
    recipe = {**RECIPES[name['method']], **SET_RECIPES.get(name['dataset'], {})}
    optimizer = cfg.optim_wrapper.optimizer
    assert (optimizer.type, optimizer.lr, optimizer.weight_decay) == ('AdamW', recipe['lr'], recipe['weight_decay'])
    assert cfg.train_dataloader.batch_size == recipe['batch_size']
    assert cfg.model.backbone.drop_path_rate in recipe['drop_path']
    warm_ups = [one for one in cfg.param_scheduler if one.type == 'LinearLR']
    assert [one.end for one in warm_ups if not one.by_epoch] == [recipe['warm_up']] * bool(recipe['warm_up'])
    [falling] = [one for one in cfg.param_scheduler if one.type != 'LinearLR']
    if task(stem) == 'detection':
        assert (falling.type, falling.milestones) == ('MultiStepLR', MILESTONES[cfg.train_cfg.max_epochs])
    else:
        assert falling.type == 'PolyLR' and falling.get('eta_min', 0.0) < optimizer.lr
        assert cfg.tta_model.type == 'SegTTAModel' and words(cfg.tta_pipeline[-1].type) == 'TestTimeAug'


@pytest.mark.parametrize('stem', [stem for stem in FIRSTS if 'scenes' not in stem])
def test_what_does_not_decay(stem: str) -> None:
    """Norms, positions and scalings of the backbone, in the recipes of Swin and SegFormer, whose head learns faster."""
    cfg = parsed(stem)
    method = named(stem)['method']
    with torch.device('meta'):
        model: Any = build(cfg)
    wrapper = build_optim_wrapper(model, cfg.optim_wrapper)
    groups = {id(weight): group for group in wrapper.optimizer.param_groups for weight in group['params']}
    backbone, base = elastic_backbone(model), cfg.optim_wrapper.optimizer
    free = set()
    if method in ('cascade-mask-rcnn', 'upernet', 'segformer'):
        free = position_weights(backbone)
        for name, module in backbone.named_modules():
            if isinstance(module, (nn.LayerNorm, nn.modules.batchnorm._BatchNorm, SwitchableScale)):
                free |= {f'{name}.{leaf}' for leaf, _ in module.named_parameters()}
    for name, weight in backbone.named_parameters():
        group = groups[id(weight)]
        assert (group['lr'], group['weight_decay']) == (base.lr, 0 if name in free else base.weight_decay), name
    if method == 'segformer':
        assert {groups[id(weight)]['lr'] for weight in model.decode_head.parameters()} == {10 * base.lr}


@pytest.mark.parametrize('stem', [stem for stem in FIRSTS if 'nasvit' in stem])
def test_synchronised_batch_norms_give_the_same(stem: str) -> None:
    """One or two images a GPU are too few for batch norms; mmengine's Runner puts others in their place."""
    cfg = parsed(stem)
    assert cfg.sync_bn == 'torch'
    backbone: Any = MODELS.build(cfg.model.backbone).eval()
    torch.manual_seed(0)
    for module in backbone.modules():
        if isinstance(module, nn.BatchNorm2d):
            for tensor in (module.weight, module.bias, module.running_mean, module.running_var):
                nn.init.uniform_(tensor, 0.5, 1.5)
    images = torch.rand(1, 3, SIDE, 3 * SIDE // 2)
    with torch.no_grad():
        before = backbone(images)
        synchronised = convert_sync_batchnorm(backbone, cfg.sync_bn).eval()
        kinds = {type(module) for module in synchronised.modules()}
        assert nn.SyncBatchNorm in kinds and not [kind for kind in kinds if issubclass(kind, nn.BatchNorm2d)]
        torch.testing.assert_close(synchronised(images), before)


@pytest.mark.parametrize('stem', DENSE)
def test_weights_are_those_of_earlier_steps(stem: str) -> None:
    """None that nobody has published, and none of the toolbox's backbone."""
    cfg = parsed(stem)
    suffixes = ('.pth', '.pt', '.bin', '.safetensors', '.json')
    for text in strings([cfg.model, cfg.get('load_from')]):
        if '://' not in text and not text.endswith(suffixes):
            continue
        assert text.startswith('work_dirs/'), f'{text} is a file of nobody'
        assert source_of(text).model.backbone.type == cfg.model.backbone.type
