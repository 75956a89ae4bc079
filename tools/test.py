"""Evaluate a model on its test set: ``python tools/test.py CONFIG CHECKPOINT [--arch ARCH] [--tta] [--show-dir DIR]``.

ARCH selects an architecture of a supernet: a file, such as ``best_arch.json`` of a search, or a zoo name. ``--tta``
merges predictions for several views of each image, with ``tta_pipeline`` and ``tta_model`` of the config. Detectors and
classifiers without these use each image and its mirror image. ``--show-dir`` draws the predictions for every image.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from mmengine.config import Config
from mmengine.dist import is_main_process
from mmengine.model import BaseTTAModel, is_model_wrapper
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # configs may import projects/ from any folder

import vitnas_core  # noqa: F401  (registers everything, patches torch)
from projects import read_config
from vitnas_core.backbones import ElasticBackbone, elastic_backbone
from vitnas_core.checkpoints import load_weights
from vitnas_core.errors import VitnasError
from vitnas_core.evaluation import elastic_norms
from vitnas_core.launch import add_arguments, make_runner
from vitnas_core.utils.fileio import atomic_write

FLIP_KEYS = ('img_id', 'img_path', 'ori_shape', 'img_shape', 'scale_factor', 'flip', 'flip_direction')
TTA_DEFAULTS: dict[str | None, tuple[dict[str, Any], str, dict[str, Any] | None]] = {
    'mmdet': (
        # Not mmdet.DetTTAModel: that class is in the parent of mmdet's registry.
        dict(
            type='DetTTAModel', _scope_='mmdet', tta_cfg=dict(nms=dict(type='nms', iou_threshold=0.5), max_per_img=100)
        ),
        'mmdet.RandomFlip',
        dict(type='mmdet.PackDetInputs', meta_keys=FLIP_KEYS),
    ),
    'mmpretrain': (dict(type='mmpretrain.AverageClsScoreTTA'), 'RandomFlip', None),
}
"""Scope → ``tta_model``, the flip transform, and the last transform of every view (None: that of the test pipeline).

These are the defaults of each project's own tools/test.py.
"""
DRAWING: dict[str | None, tuple[str, dict[str, Any], str | None]] = {
    'mmdet': ('DetLocalVisualizer', dict(type='mmdet.DetVisualizationHook', draw=True), 'test_out_dir'),
    'mmpretrain': (
        'UniversalVisualizer',
        dict(type='mmpretrain.VisualizationHook', enable=True, interval=1),
        'out_dir',
    ),
    'mmseg': ('SegLocalVisualizer', dict(type='mmseg.SegVisualizationHook', draw=True, interval=1), None),
}
"""Scope → visualizer, drawing hook, and the hook's argument for the folder (None: the visualizer has it)."""


def parse_args(args: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument('checkpoint', help='weights (.pth or .safetensors)')
    parser.add_argument('--arch', help='architecture of the supernet to evaluate; defaults to the largest')
    parser.add_argument('--tta', action='store_true', help='test-time augmentation: several scales or mirror images')
    parser.add_argument('--show-dir', type=Path, help='draw the predictions for every image into this folder')
    return parser.parse_args(args)


def set_arch(model: nn.Module, ref: str | None, say: Callable[[str], None]) -> dict[str, Any] | None:
    """Activate an architecture; defaults to the largest of a supernet.

    Args:
        model: Any model.
        ref: A zoo name or a file, or None.
        say: Logs the architecture.

    Returns:
        The architecture; None if the model has no backbone of ours.

    Raises:
        ArchError: There is no such architecture, or it does not fit the weights.
        VitnasError: ``ref`` is given, but the model is no supernet.
    """
    found = [module for module in model.modules() if isinstance(module, ElasticBackbone)]
    if ref is None and not found:
        return None
    backbone = elastic_backbone(model)
    if ref is not None and backbone.space.size() == 1:
        raise VitnasError('--arch is for supernets, but the backbone of this config has one architecture (`arch=`)')
    if ref is not None:
        backbone.set_arch(ref)
    if backbone.space.size() > 1:
        which = ref or 'the largest of its space; --arch gives another'
        say(f'the supernet is evaluated at {which}: {backbone.arch.to_json()}')
        if elastic_norms(model):
            say('its batch norms mix statistics of all architectures: test a subnet of extract_subnet.py --recalibrate')
    return backbone.arch.to_dict()


def use_tta(cfg: Config) -> None:
    """Wrap the model of a config for test-time augmentation, and set ``tta_pipeline`` for every test set.

    Args:
        cfg: A config with ``tta_model`` and ``tta_pipeline``. Defaults of the model's project (``TTA_DEFAULTS``)
            replace missing ones.

    Raises:
        VitnasError: One is missing and has no default.
    """
    missing = [name for name in ('tta_model', 'tta_pipeline') if cfg.get(name) is None]
    scope = _scope(cfg)
    if missing and scope not in TTA_DEFAULTS:
        raise VitnasError(
            f'--tta needs `{"` and `".join(missing)}`, but {cfg.filename} has none; an example is '
            f'mmseg::_base_/datasets/ade20k.py, and models of {" and ".join(map(str, TTA_DEFAULTS))} need neither'
        )
    model, flip, pack = TTA_DEFAULTS[scope] if missing else ({}, '', None)
    for dataset in _datasets(cfg.test_dataloader.dataset):
        if 'tta_pipeline' in missing:
            *before, last = dataset.pipeline
            views = [[dict(type=flip, prob=1.0), dict(type=flip, prob=0.0)], [pack or last]]
            dataset.pipeline = copy.deepcopy([*before, dict(type='TestTimeAug', transforms=views)])
        else:
            dataset.pipeline = copy.deepcopy(cfg.tta_pipeline)
    inner = cfg.model
    if cfg.get('data_preprocessor') is not None:  # otherwise the wrapper would override the model's own
        inner.setdefault('data_preprocessor', cfg.pop('data_preprocessor'))
    cfg.model = dict(copy.deepcopy(model if 'tta_model' in missing else cfg.tta_model), module=inner)


def unwrap_tta(wrapper: BaseTTAModel) -> nn.Module:
    """Return the wrapped model.

    Raises:
        VitnasError: The model predicts masks, which mmdet does not merge.
    """
    if type(wrapper).__name__ == 'DetTTAModel' and getattr(wrapper.module, 'with_mask', False):
        raise VitnasError(
            f'--tta: DetTTAModel of mmdet merges boxes, not masks, but {type(wrapper.module).__name__} predicts masks; '
            f'test it without --tta, or name a `tta_model` that merges them'
        )
    return wrapper.module


def draw_into(cfg: Config, folder: Path) -> None:
    """Draw the predictions for every test image, with the hook and visualizer of the model's project.

    Raises:
        VitnasError: The model's project has no such hook.
    """
    scope = _scope(cfg)
    if scope not in DRAWING:
        raise VitnasError(f'--show-dir draws for models of {", ".join(map(str, DRAWING))}, but this one is of {scope}')
    visualizer, hook, where = DRAWING[scope]
    target = str(folder.resolve())  # a relative path would be inside the work dir
    own = dict(type=f'{scope}.{visualizer}', vis_backends=[dict(type='LocalVisBackend')])
    # A unique name: mmengine returns an existing visualizer of the same name, whatever its type.
    more = {'name': f'{scope} {target}', **({'save_dir': target} if where is None else {})}
    cfg.visualizer = {**own, **(cfg.get('visualizer') or {}), **more}
    drawing = {'visualization': {**hook, **({} if where is None else {where: target})}}
    cfg.default_hooks = {**(cfg.get('default_hooks') or {}), **drawing}


def _scope(cfg: Config) -> str | None:
    """Return the project of a config's model."""
    kind = cfg.model['type']
    scope = kind.rpartition('.')[0] if isinstance(kind, str) else kind.__module__.partition('.')[0]
    return scope or cfg.get('default_scope')


def _datasets(node: Any) -> Iterator[Any]:
    """Yield the datasets of a config, inside wrappers such as ``ConcatDataset``."""
    inside = [node[name] for name in ('dataset', 'datasets') if name in node]
    if not inside:
        yield node
    for child in inside:
        for one in child if isinstance(child, (list, tuple)) else [child]:
            yield from _datasets(one)


def main(args: list[str] | None = None) -> dict[str, Any]:
    """Evaluate the model and write the metrics into the work dir."""
    options = parse_args(args)
    cfg = read_config(options)
    cfg.train_cfg = cfg.train_dataloader = cfg.optim_wrapper = cfg.param_scheduler = None  # no training
    cfg.load_from, cfg.resume = None, False
    cfg.pop('runner_type', None)
    for name in ('test_cfg', 'test_dataloader', 'test_evaluator'):
        if cfg.get(name) is None:
            raise VitnasError(f'a test needs `{name}`, but {options.config} has none')
    if options.show_dir is not None:
        draw_into(cfg, options.show_dir)
    if options.tta:
        use_tta(cfg)
    runner = make_runner(cfg)
    model = runner.model.module if is_model_wrapper(runner.model) else runner.model
    if isinstance(model, BaseTTAModel):
        model = unwrap_tta(model)
    load_weights(model, options.checkpoint)
    arch = set_arch(model, options.arch, runner.logger.info)
    metrics = runner.test()
    result = dict(config=options.config, checkpoint=options.checkpoint, arch=arch, tta=options.tta, metrics=metrics)
    if is_main_process():
        path = Path(cfg.work_dir) / 'test.json'
        atomic_write(path, json.dumps(result, indent=1, default=float) + '\n')
        runner.logger.info(f'{", ".join(f"{name} {value}" for name, value in metrics.items())}: {path}')
    return result


if __name__ == '__main__':
    try:
        main()
    except VitnasError as err:
        raise SystemExit(f'{type(err).__name__}: {err}') from None
