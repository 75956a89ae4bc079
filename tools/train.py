"""Train a model from a config: ``python tools/train.py CONFIG [--work-dir DIR] [--resume] [--cfg-options …]``."""

import argparse
from pathlib import Path

from mmengine.config import Config, DictAction
from mmengine.runner import Runner

import vitnas_core  # noqa: F401  (its registries and what this torch needs)


def parse_args(args: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('config', help='config file')
    parser.add_argument('--work-dir', help='where logs and checkpoints go; defaults to work_dirs/CONFIG')
    parser.add_argument('--resume', action='store_true', help='go on from the last checkpoint of the work dir')
    parser.add_argument('--cfg-options', nargs='+', action=DictAction, default={}, help='key=value pairs that override')
    parser.add_argument('--launcher', choices=['none', 'pytorch', 'slurm', 'mpi'], default='none')
    parser.add_argument('--local_rank', '--local-rank', type=int, default=0, help='given by the launcher')
    options = parser.parse_args(args)
    if not Path(options.config).is_file():
        parser.error(f'there is no config file {options.config}')
    return options


def main(args: list[str] | None = None) -> Runner:
    """Build the runner of a config and train."""
    options = parse_args(args)
    cfg = Config.fromfile(options.config)
    cfg.merge_from_dict(options.cfg_options)
    cfg.launcher = options.launcher
    cfg.resume = options.resume or cfg.get('resume', False)
    cfg.work_dir = options.work_dir or cfg.get('work_dir') or str(Path('work_dirs') / Path(options.config).stem)
    runner = Runner.from_cfg(cfg)
    runner.train()
    return runner


if __name__ == '__main__':
    main()
