"""Plot a learned sampler: ``plot_sampler.py CONFIG CHECKPOINT --out sampler.png``.

CONFIG is any config whose loop has a sampler that learns: a supernet, a sampler's training or a search with the
sampler. CHECKPOINT comes from such a training. The picture shows costs and options of the drawn architectures by
budget. A table shows how well they meet the budgets.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from mmengine.config import Config, DictAction
from mmengine.registry import MODELS

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # configs may import projects/ from any folder

import vitnas_core  # noqa: F401  (registers everything, patches torch)
from projects import read_config
from vitnas_core.backbones import elastic_backbone
from vitnas_core.errors import VitnasError
from vitnas_core.evaluation.pricing import pricer
from vitnas_core.model_configs import model_config
from vitnas_core.registry import ARCH_SAMPLERS
from vitnas_core.training.samplers import FocusSampler
from vitnas_core.utils.text import table
from vitnas_core.visualization import SamplerDraws, collect_draws, draw_sampler, save_png
from vitnas_core.visualization.formats import cost_text

_ROWS = 7
"""Number of budgets in the table."""


def parse_args(args: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('config', help='config with a learned sampler in train_cfg')
    parser.add_argument('checkpoint', help='checkpoint with the trained sampler')
    parser.add_argument(
        '--out', type=Path, default=Path('sampler.png'), metavar='FILE', help='the picture; defaults to sampler.png'
    )
    parser.add_argument('--draws', type=int, default=200, help='architectures per budget; defaults to 200')
    parser.add_argument('--seed', type=int, default=0, help='seed of the draws; defaults to 0')
    parser.add_argument('--cfg-options', nargs='+', action=DictAction, default={}, help='key=value pairs that override')
    parser.set_defaults(launcher='none', work_dir=None)
    options = parser.parse_args(args)
    if options.draws < 1:
        parser.error(f'--draws should be at least 1, but got {options.draws}')
    return options


def load_sampler(cfg: Config, checkpoint: str) -> FocusSampler:
    """Build the sampler of a config and load its trained state from a checkpoint.

    Raises:
        VitnasError: The config has no sampler, or one that does not learn.
        CheckpointError: The checkpoint has no sampler, or one for another space or other budgets.
    """
    wanted = 'give sampler=dict(type="vitnas.FocusSampler", …), as in the supernet training'
    sampler_cfg = (cfg.get('train_cfg') or {}).get('sampler')
    if sampler_cfg is None:
        raise VitnasError(f'train_cfg of {cfg.filename} has no `sampler`; {wanted}')
    sampler = ARCH_SAMPLERS.build(sampler_cfg)
    if not isinstance(sampler, FocusSampler):
        raise VitnasError(
            f'train_cfg.sampler of {cfg.filename} is a {type(sampler).__name__}, which does not learn; {wanted}'
        )
    backbone = elastic_backbone(MODELS.build(model_config(cfg)))
    sampler.bind(backbone.space, pricer(cfg, backbone.price), 0)
    sampler.load_file(checkpoint)
    return sampler


def describe(draws: SamplerDraws) -> str:
    """Format a table of budgets: median cost of the draws, fraction within the budget, number of distinct draws."""
    rows = []
    for budget in np.linspace(draws.budgets[0], draws.budgets[-1], min(_ROWS, len(draws.budgets))):
        place = np.abs(draws.budgets - budget).argmin()
        costs, codes = draws.costs[place], draws.codes[place]
        median, within = cost_text('macs', float(np.median(costs))), (costs <= draws.budgets[place]).mean()
        different = len(np.unique(codes, axis=0))
        rows.append([cost_text('macs', draws.budgets[place]), median, f'{within:.0%}', f'{different} of {len(codes)}'])
    return table(['budget (MACs)', 'median cost', 'within the budget', 'different'], rows)


def main(args: list[str] | None = None) -> None:
    """Draw architectures, print the table and write the picture."""
    options = parse_args(args)
    sampler = load_sampler(read_config(options), options.checkpoint)
    draws = collect_draws(sampler, np.random.default_rng(options.seed), options.draws)
    print(describe(draws))
    save_png(draw_sampler(draws), options.out)
    print(f'Picture: {options.out}')


if __name__ == '__main__':
    try:
        main()
    except VitnasError as err:
        raise SystemExit(f'{type(err).__name__}: {err}') from None
