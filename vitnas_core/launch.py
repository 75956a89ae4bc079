"""From a config file and a command line to a runner: what every tool does alike."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
import torch.distributed
from mmengine.config import Config, DictAction
from mmengine.dist import init_dist, is_distributed
from mmengine.runner import Runner

from .errors import VitnasError
from .registry import RUNNERS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options that ``tools/train.py`` and ``tools/test.py`` share, named as in every OpenMMLab project."""
    parser.add_argument('config', help='config file')
    parser.add_argument('--work-dir', help='where logs and results go; defaults to work_dirs/CONFIG')
    parser.add_argument('--cfg-options', nargs='+', action=DictAction, default={}, help='key=value pairs that override')
    parser.add_argument('--launcher', choices=['none', 'pytorch', 'slurm', 'mpi'], default='none')
    parser.add_argument('--local_rank', '--local-rank', type=int, default=0, help='given by the launcher')


def read_config(options: argparse.Namespace) -> Config:
    """The config of a command line, with what it overrides.

    Raises:
        VitnasError: There is no such file, or it has no model.
    """
    if not Path(options.config).is_file():
        raise VitnasError(f'there is no config file {options.config}')
    cfg = Config.fromfile(options.config)
    cfg.merge_from_dict(options.cfg_options)
    cfg.launcher = options.launcher
    cfg.work_dir = options.work_dir or cfg.get('work_dir') or str(Path('work_dirs') / Path(options.config).stem)
    if 'model' not in cfg:
        raise VitnasError(f'{options.config} has no `model`; give a config to train, not a part of one')
    return cfg


def make_runner(cfg: Config) -> Any:
    """Build the runner, distributed on CPUs too (mmengine's own start asks for a GPU).

    ``runner_type`` asks for another runner than mmengine's, as everywhere in mm. A search leaves out what its config
    took over from the training of the supernet.
    """
    from .search.config import is_search, leave_out_training  # which imports this module, for the space search

    if is_search(cfg):
        leave_out_training(cfg)
    if cfg.launcher == 'pytorch' and not torch.cuda.is_available():
        if not torch.distributed.is_initialized():
            torch.distributed.init_process_group('gloo')
        unused = cfg.get('find_unused_parameters', False)
        wrapper = dict(type='MMDistributedDataParallel', broadcast_buffers=False, find_unused_parameters=unused)
        cfg.model_wrapper_cfg = {**wrapper, **cfg.get('model_wrapper_cfg', {}), 'device_ids': None}
    if 'runner_type' not in cfg:
        return Runner.from_cfg(cfg)
    if cfg.launcher != 'none' and not is_distributed():  # mmengine's own runner does it by itself
        init_dist(cfg.launcher, **cfg.get('env_cfg', {}).get('dist_cfg', {}))
    return RUNNERS.build(cfg)
