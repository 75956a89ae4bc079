"""Train or search from a config: ``python tools/train.py CONFIG [--work-dir DIR] [--resume] [--cfg-options …]``."""

import argparse
import sys
from pathlib import Path

from mmengine.runner import Runner

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # configs may import projects/ from any folder

import vitnas_core  # noqa: F401  (registers everything, patches torch)
from projects import read_config
from vitnas_core.errors import VitnasError
from vitnas_core.launch import add_arguments, make_runner
from vitnas_core.search.config import is_search


def parse_args(args: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser)
    parser.add_argument(
        '--resume',
        action='store_true',
        help='resume from the last checkpoint of the work dir; a search always resumes from its journal',
    )
    return parser.parse_args(args)


def main(args: list[str] | None = None) -> Runner:
    """Build the runner of a config and run its training or search."""
    options = parse_args(args)
    cfg = read_config(options)
    cfg.resume = options.resume or cfg.get('resume', False)
    # A search resumes from its journal, and always needs its supernet.
    if options.resume and cfg.get('load_from') and 'load_from' not in options.cfg_options and not is_search(cfg):
        # mmengine would resume from load_from, the checkpoint of another run that this training started from.
        cfg.resume = (Path(cfg.work_dir) / 'last_checkpoint').is_file()
        cfg.load_from = None if cfg.resume else cfg.load_from
    runner = make_runner(cfg)
    runner.train()
    return runner


if __name__ == '__main__':
    try:
        main()
    except VitnasError as err:
        raise SystemExit(f'{type(err).__name__}: {err}') from None
