"""From a config file and a command line to a runner, for every tool."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from mmengine.config import Config, DictAction
from mmengine.dist import init_dist, is_distributed
from mmengine.runner import Runner

from .errors import VitnasError
from .integration.distributed import start_on_cpus
from .registry import RUNNERS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``tools/train.py`` and ``tools/test.py``, named as in every OpenMMLab project."""
    parser.add_argument('config', help='config file')
    parser.add_argument('--work-dir', help='where logs and results go; defaults to work_dirs/CONFIG')
    parser.add_argument('--cfg-options', nargs='+', action=DictAction, default={}, help='key=value pairs that override')
    parser.add_argument('--launcher', choices=['none', 'pytorch', 'slurm', 'mpi'], default='none')
    parser.add_argument('--local_rank', '--local-rank', type=int, default=0, help='given by the launcher')


def read_config(options: argparse.Namespace) -> Config:
    """Read the config of a command line, with its overrides.

    Raises:
        VitnasError: The file is missing or has no model.
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
    """Build the runner; distributed training works on CPUs, too.

    ``runner_type`` selects another runner than mmengine's, as everywhere in mm. A search and the training of a sampler
    ignore what their configs inherit from the training of the supernet
    (:func:`~vitnas_core.search.config.leave_out_training`).
    """
    from .search.config import leave_out_training  # which imports this module, for the space search

    leave_out_training(cfg)
    start_on_cpus(cfg)
    if 'runner_type' not in cfg:
        return Runner.from_cfg(cfg)
    if cfg.launcher != 'none' and not is_distributed():  # mmengine's own runner does it by itself
        init_dist(cfg.launcher, **((cfg.get('env_cfg') or {}).get('dist_cfg') or {}))
    return RUNNERS.build(cfg)
