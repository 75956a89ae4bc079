"""Evaluate a model on its test set: ``python tools/test.py CONFIG CHECKPOINT [--arch ARCH] [--work-dir DIR]``.

A supernet is evaluated at one architecture: a file, such as ``best_arch.json`` of a search, or a name of the zoo.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mmengine.dist import is_main_process
from mmengine.model import is_model_wrapper
from torch import nn

import vitnas_core  # noqa: F401  (its registries and what this torch needs)
from vitnas_core.backbones import ElasticBackbone, elastic_backbone
from vitnas_core.checkpoints import load_weights
from vitnas_core.errors import VitnasError
from vitnas_core.fileio import atomic_write
from vitnas_core.launch import add_arguments, make_runner, read_config


def parse_args(args: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument('checkpoint', help='weights (.pth or .safetensors)')
    parser.add_argument('--arch', help='architecture at which a supernet is evaluated; defaults to its largest')
    return parser.parse_args(args)


def set_arch(model: nn.Module, ref: str | None, say: Callable[[str], None]) -> dict[str, Any] | None:
    """Activate the architecture that is asked for; of a supernet the largest by default.

    Args:
        model: Any model.
        ref: A zoo name or a file, or None.
        say: Where to say which one it is.

    Returns:
        The architecture, None where the model has no backbone of ours.

    Raises:
        ArchError: There is no such architecture, or it does not fit the weights.
        VitnasError: One is asked for, but the model is no supernet.
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
    return backbone.arch.to_dict()


def main(args: list[str] | None = None) -> dict[str, Any]:
    """Evaluate, and write the metrics into the work dir."""
    options = parse_args(args)
    cfg = read_config(options)
    cfg.train_cfg = cfg.train_dataloader = cfg.optim_wrapper = cfg.param_scheduler = None  # nothing is trained
    cfg.load_from, cfg.resume = None, False
    cfg.pop('runner_type', None)
    for name in ('test_cfg', 'test_dataloader', 'test_evaluator'):
        if cfg.get(name) is None:
            raise VitnasError(f'a test needs `{name}`, but {options.config} has none')
    runner = make_runner(cfg)
    model = runner.model.module if is_model_wrapper(runner.model) else runner.model
    load_weights(model, options.checkpoint)
    arch = set_arch(model, options.arch, runner.logger.info)
    metrics = runner.test()
    result = dict(config=options.config, checkpoint=options.checkpoint, arch=arch, metrics=metrics)
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
