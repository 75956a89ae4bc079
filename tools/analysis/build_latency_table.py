"""Measure the latency of a search space on this machine: ``build_latency_table.py CONFIG --out FILE``.

CONFIG is any config whose model has an elastic backbone; the tool measures only the backbone. A search takes the file
as ``latency_table``, for ``constraint=dict(latency=(None, 0.02))``. Leave the machine idle during the measurement, or
set ``--clock cpu``.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import torch
from mmengine.config import DictAction
from mmengine.registry import MODELS
from mmengine.utils import ProgressBar

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # configs may import projects/ from any folder

import vitnas_core  # noqa: F401  (registers everything, patches torch)
from projects import read_config
from vitnas_core.backbones import elastic_backbone
from vitnas_core.errors import VitnasError
from vitnas_core.latency.measure import CPUClock, measure
from vitnas_core.latency.table import SPEARMAN, LatencyTable
from vitnas_core.model_configs import model_config
from vitnas_core.utils.fileio import atomic_write


def parse_args(args: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('config', help='config of a model with an elastic backbone')
    parser.add_argument('--out', type=Path, required=True, metavar='FILE', help='the table to write (.json)')
    parser.add_argument(
        '--input-size', type=int, nargs='+', metavar='N', help="side, or height and width; defaults to the backbone's"
    )
    parser.add_argument('--batch-size', type=int, default=1, help='images per batch; defaults to 1')
    parser.add_argument('--threads', type=int, help="torch threads on a CPU; defaults to torch's own number")
    parser.add_argument('--device', default='cpu', help='cpu or cuda; defaults to cpu')
    parser.add_argument(
        '--clock',
        choices=['wall', 'cpu'],
        default='wall',
        help='cpu counts the CPU time of one thread, for a shared CPU (needs --threads 1); defaults to wall',
    )
    parser.add_argument('--times', type=int, default=4, help='minimum occurrences of each setting; defaults to 4')
    parser.add_argument('--rounds', type=int, default=15, help='visits to each architecture; defaults to 15')
    parser.add_argument('--held-out', type=int, default=30, help='architectures to validate on; defaults to 30')
    parser.add_argument('--seed', type=int, default=0, help='seed of the architectures and images; defaults to 0')
    parser.add_argument('--cfg-options', nargs='+', action=DictAction, default={}, help='key=value pairs that override')
    parser.set_defaults(launcher='none', work_dir=None)
    options = parser.parse_args(args)
    if options.held_out < 3:
        parser.error(f'--held-out should be at least 3, but got {options.held_out}')
    if options.threads is not None and options.threads < 1:
        parser.error(f'--threads should be at least 1, but got {options.threads}')
    if options.clock == 'cpu' and (options.threads != 1 or options.device != 'cpu'):
        parser.error('--clock cpu counts one thread of a CPU: set --threads 1 and --device cpu')
    if len(options.input_size or []) > 2:
        parser.error(f'--input-size should be a side, or height and width, but got {options.input_size}')
    return options


class _Progress:
    """Progress bar in a terminal; otherwise one line per tenth."""

    def __init__(self) -> None:
        self.bar: ProgressBar | None = None

    def __call__(self, done: int, total: int) -> None:
        """Show the number of finished visits."""
        if sys.stdout.isatty():
            self.bar = self.bar or ProgressBar(total, file=sys.stdout)
            self.bar.update()
        elif done * 10 // total > (done - 1) * 10 // total:
            print(f'{done} of {total} visits to architectures', flush=True)


def main(args: list[str] | None = None) -> LatencyTable:
    """Measure and validate a table, write it and print its quality."""
    options = parse_args(args)
    if options.device == 'cuda' and not torch.cuda.is_available():
        raise VitnasError('--device is cuda, but torch sees no GPU here; cpu is valid')
    threads = torch.get_num_threads()
    torch.set_num_threads(options.threads or threads)
    try:
        backbone = elastic_backbone(MODELS.build(model_config(read_config(options)))).to(options.device)
        given = options.input_size and (options.input_size[0], options.input_size[-1])
        size = given or backbone.settings.get('img_size', 224)
        rng = np.random.default_rng(options.seed)
        table = measure(
            backbone,
            size,
            options.batch_size,
            rng,
            times=options.times,
            rounds=options.rounds,
            held_out=options.held_out,
            clock=CPUClock() if options.clock == 'cpu' else None,
            progress=_Progress(),
        )
    finally:
        torch.set_num_threads(threads)
    atomic_write(options.out, table.to_json())
    print(f'{len(table.blocks)} settings of blocks, {len(table.stages)} of stages: {options.out}')
    if table.validation is None:
        print('NOT validated: every architecture of the space was measured, so none is left for validation')
    else:
        print(table.validation)
        if not table.validation.spearman >= SPEARMAN:
            advice = 'measure again on a quiet machine, or with more --rounds'
            print(f'This is BELOW {SPEARMAN}: do not rely on the table; {advice}')
    return table


if __name__ == '__main__':
    try:
        main()
    except VitnasError as err:
        raise SystemExit(f'{type(err).__name__}: {err}') from None
