"""Parameters and multiply-accumulates of any model: ``python tools/analysis/get_flops.py CONFIG [--shape H [W]]``.

CONFIG is a file, or the name of a stock config (``mmdet::swin/mask-rcnn_swin-t-p4-w7_fpn_1x_coco.py``). The tool counts
inference on one image, part by part: convolutions, linear layers and matrix products, which papers and toolboxes
print as "FLOPs". It computes only shapes, so it takes seconds and needs no weights.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from mmengine.config import Config, DictAction
from mmengine.hub import get_config
from mmengine.model import revert_sync_batchnorm
from mmengine.registry import MODELS
from mmengine.structures import BaseDataElement
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # configs may import projects/ from any folder

import vitnas_core  # noqa: F401  (registers everything, patches torch)
from projects import read_config
from vitnas_core.auto import owner_of
from vitnas_core.costs import Cost
from vitnas_core.errors import VitnasError
from vitnas_core.integration.heads import run_roi_head
from vitnas_core.model_configs import backbone_of, model_config
from vitnas_core.utils.counting import count_params
from vitnas_core.utils.text import table

SHAPES = {'mmdet': (800, 1280), 'mmseg': (512, 512)}
"""Scope → default height and width of images, as in most papers. Other scopes use 224 × 224."""

PROPOSALS, MASK_ROIS = 1000, 100
"""Number of boxes in every stage of a detector with proposals, and number of boxes with masks.

Printed "FLOPs" use these numbers, from ``forward_dummy`` of mmdet 2.
"""

QUESTION = 16
"""Number of question tokens for VQA models."""


def count(cfg: Config, shape: tuple[int, int], proposals: int = PROPOSALS) -> dict[str, Cost]:
    """Count the cost of a model, part by part.

    Args:
        cfg: The whole config. A supernet is counted at its largest architecture.
        shape: Height and width of the network's input image.
        proposals: Boxes in every stage of a detector with proposals. Defaults to 1000.

    Returns:
        Name of the part → cost; the last one is ``'total'``. Parts that do not run at inference have no MACs.

    Raises:
        VitnasError: The model cannot be built or run, or a part of it would not be counted.
    """
    for device in ('meta', 'cpu'):  # a few models need numbers, not only shapes
        model = _build(cfg)
        try:
            return _count(model, device, shape, proposals)
        except VitnasError:
            raise
        except Exception as err:  # every model fails in its own way
            failure = err
    raise VitnasError(
        f'{type(model).__name__} does not run on one image of {shape[0]} x {shape[1]}: {_first_line(failure)}'
    ) from failure


def _build(cfg: Config) -> nn.Module:
    try:
        model = MODELS.build(_without_weights(model_config(cfg)))
    except VitnasError:
        raise
    except Exception as err:  # every part fails in its own way
        raise VitnasError(f'`model` of {cfg.filename} cannot be built: {_first_line(err)}') from err
    for name, module in model.named_modules():
        if any(kind.__module__.startswith('mmcv.ops.') for kind in type(module).__mro__) and hasattr(module, 'weight'):
            raise VitnasError(f'{name} is a {type(module).__name__}, an operator of mmcv that would not be counted')
    # torch's counter tracks inputs that require gradients, and fails if they are parameters.
    return revert_sync_batchnorm(model).eval().requires_grad_(False)


def _without_weights(node: Any) -> Any:
    """Copy a config so that no part loads weights at build time; ``init_cfg`` would load them only later."""
    if isinstance(node, (list, tuple)):
        return type(node)(_without_weights(child) for child in node)
    if not isinstance(node, dict):
        return node
    copied = type(node)({key: _without_weights(value) for key, value in node.items()})
    if copied.get('pretrained'):
        copied['pretrained'] = False if copied['pretrained'] is True else None
    return copied


@torch.no_grad()
def _count(model: nn.Module, device: str, shape: tuple[int, int], proposals: int) -> dict[str, Cost]:
    counter = FlopCounterMode(display=False)
    macs: dict[str, int] = {}
    for name, module in _parts(model):
        macs[name] = 0
        _note_macs(module, name, macs, counter)
    images = torch.zeros(1, 3, *shape, device=device)
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)  # like fused attention, it is one operator that torch does not count
    try:
        with sdpa_kernel(SDPBackend.MATH), counter:
            _run(model.to(device), images, proposals)
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
    params = dict.fromkeys(macs, 0)
    for name, module in _parts(model):
        params[name] += count_params(module)
    total = Cost(count_params(model), counter.get_total_flops() // 2)
    other = Cost(total.params - sum(params.values()), total.macs - sum(macs.values()))
    costs = {name: Cost(params[name], macs[name]) for name in macs}
    return {**costs, **({'other': other} if other != Cost(0, 0) else {}), 'total': total}


def _parts(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield name and module of each part in the table; stages of a cascade share a name."""
    for name, child in model.named_children():
        inner = [(f'{name}.{n}', c) for n, c in child.named_children()] if name == 'roi_head' else [(name, child)]
        for path, part in inner:
            for module in part if isinstance(part, nn.ModuleList) else [part]:
                if count_params(module):
                    yield path, module


def _note_macs(module: nn.Module, name: str, macs: dict[str, int], counter: FlopCounterMode) -> None:
    """Add the MACs of a module to ``macs``. Hooks would miss heads, whose ``forward`` mm models call directly."""
    forward = module.forward

    def noting(*args: Any, **kwargs: Any) -> Any:
        before = counter.get_total_flops()
        outputs = forward(*args, **kwargs)
        macs[name] += (counter.get_total_flops() - before) // 2
        return outputs

    module.forward = noting


def _run(model: nn.Module, images: Tensor, proposals: int) -> None:
    """Run a model up to its heads, without post-processing such as NMS."""
    if hasattr(model, 'roi_head'):
        _run_two_stages(model, images, proposals)
        return
    shape = tuple(images.shape[-2:])
    sizes = dict(img_shape=shape, ori_shape=shape, pad_shape=shape, batch_input_shape=shape, scale_factor=(1.0, 1.0))
    question = torch.ones(QUESTION, dtype=torch.long, device=images.device)
    model(images, [BaseDataElement(metainfo=sizes, question=question)], mode='tensor')


def _run_two_stages(model: Any, images: Tensor, proposals: int) -> None:
    """Run a detector on a fixed number of boxes.

    In its own ``forward``, the number of boxes depends on the data, and a cascade makes masks for all of them.

    Raises:
        VitnasError: The detector has parts that would not be counted.
    """
    from mmdet.models.roi_heads import CascadeRoIHead, StandardRoIHead  # after vitnas_core, which repairs torchvision
    from mmdet.models.roi_heads.roi_extractors import BaseRoIExtractor, SingleRoIExtractor

    head = model.roi_head
    extractors = [module for module in head.modules() if isinstance(module, BaseRoIExtractor)]
    known = {StandardRoIHead, CascadeRoIHead, SingleRoIExtractor}
    unknown = [type(part).__name__ for part in (head, *extractors) if type(part) not in known]
    unknown += sorted({name for name, _ in _parts(model) if '.' not in name} - {'backbone', 'neck', 'rpn_head'})
    if unknown:
        raise VitnasError(
            f'{unknown[0]} of {type(model).__name__} would not be counted; detectors with proposals should have a '
            f'{" or ".join(sorted(kind.__name__ for kind in known - {SingleRoIExtractor}))} with SingleRoIExtractor'
        )
    for extractor in extractors:
        _extract_nothing(extractor)
    features = model.extract_feat(images)
    if model.with_rpn:
        model.rpn_head(features)
    boxes = images.new_zeros(proposals, 5)
    run_roi_head(head, features, boxes, boxes[:MASK_ROIS])


def _extract_nothing(extractor: Any) -> None:
    """Make an RoI extractor return zeros of the right shape: its operator has no meta kernel, and no products."""
    size = (extractor.out_channels, *extractor.roi_layers[0].output_size)
    extractor.forward = lambda features, rois, *_, **__: features[0].new_zeros(len(rois), *size)


def _first_line(err: Exception) -> str:
    return ': '.join([type(err).__name__, *str(err).splitlines()[:1]])


def parse_args(args: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('config', help='config file, or a stock config such as mmdet::swin/FILE')
    parser.add_argument(
        '--shape',
        type=int,
        nargs='+',
        metavar='N',
        help='image side, or height and width; defaults to 800 1280 for mmdet, 512 for mmseg, 224 for others',
    )
    parser.add_argument('--proposals', type=int, default=PROPOSALS, help='boxes per stage; defaults to 1000')
    parser.add_argument('--cfg-options', nargs='+', action=DictAction, default={}, help='key=value pairs that override')
    parser.set_defaults(launcher='none', work_dir=None)
    options = parser.parse_args(args)
    if options.shape and (len(options.shape) > 2 or min(options.shape) < 1):
        parser.error(f'--shape should be a side, or height and width, but got {options.shape}')
    if options.proposals < 1:
        parser.error(f'--proposals should be at least 1, but got {options.proposals}')
    return options


def load_config(options: argparse.Namespace) -> Config:
    """Read the config of a command line, which may be the name of a stock config.

    Raises:
        VitnasError: There is no such config.
    """
    if '::' not in options.config:
        return read_config(options)
    try:
        cfg = get_config(options.config)
    except Exception as err:  # mmengine raises many kinds
        raise VitnasError(f'there is no stock config {options.config}: {_first_line(err)}') from err
    cfg.merge_from_dict(options.cfg_options)
    return cfg


def main(args: list[str] | None = None) -> dict[str, Cost]:
    """Print a table of parts; return their costs."""
    options = parse_args(args)
    cfg = load_config(options)
    default = SHAPES.get(cfg.get('default_scope'), (224, 224))
    shape = (options.shape[0], options.shape[-1]) if options.shape else default
    costs = count(cfg, shape, options.proposals)
    rows = [[name, f'{cost.params:,}', f'{cost.macs:,}'] for name, cost in costs.items()]
    asked = f', {QUESTION} tokens' if 'text' in costs else ''
    print(table([f'part, at {shape[0]} x {shape[1]}{asked}', 'params', 'MACs'], rows))
    if owner_of(cfg.model) is not None:
        backbone = backbone_of(cfg.model)
        printed = backbone.price(backbone.arch, shape).macs
        if printed != costs['backbone'].macs:
            print(f'By the convention of its paper (tools/analysis/get_cost.py), the backbone has {printed:,} MACs.')
    return costs


if __name__ == '__main__':
    try:
        main()
    except VitnasError as err:
        raise SystemExit(f'{type(err).__name__}: {err}') from None
