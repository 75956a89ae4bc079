"""The quickstart: price the published architectures, then train one small network on the embedded digits."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from mmengine.config import Config
from mmengine.runner import Runner

import vitnas_core  # noqa: F401  (before mm: it mends imports)
from vitnas_core import zoo
from vitnas_core.backbones import FAMILIES
from vitnas_core.costs import Cost, count_params
from vitnas_core.text import table

ROOT = Path(__file__).resolve().parents[1]
CONFIG = ROOT / 'projects/classification/configs/autoformer/autoformer-micro_retrain_20e_digits.py'


def priced(name: str, cost: Cost, *more: str) -> list[str]:
    """A row of the table."""
    return [name, f'{cost.params / 1e6:,.2f}', f'{cost.macs / 1e9:,.3f}', *more]


def price_zoo() -> list[list[str]]:
    """Parameters and multiply-accumulates of every published architecture, and what its paper prints."""
    rows = []
    for name in zoo.arch_names():
        entry = zoo.entry(name)
        cost = FAMILIES[entry.arch.family].cost(entry.arch, entry.input_size, entry.num_classes)
        rows.append(priced(entry.title, cost, entry.paper['params'], entry.paper['macs']))
    return rows


def train_digits(work_dir: str, epochs: int) -> list[str]:
    """Train the network of the config on the digits and test it on images that it has not seen."""
    cfg = Config.fromfile(CONFIG)
    cfg.work_dir = work_dir
    cfg.log_level = 'WARNING'
    cfg.train_cfg.max_epochs = cfg.train_cfg.val_interval = epochs
    cfg.param_scheduler[1].end = max(epochs, 4)
    cfg.custom_hooks = [dict(type='vitnas.ProgressHook')]
    runner = Runner.from_cfg(cfg)
    start = time.perf_counter()
    runner.train()
    seconds = time.perf_counter() - start
    backbone = runner.model.backbone
    cost = backbone.price(backbone.arch, 32, num_classes=10)
    assert cost.params == count_params(runner.model)
    accuracy = runner.message_hub.get_scalar('val/accuracy/top1').current()
    return priced('AutoFormer, 4 blocks, 96 wide', cost, f'{accuracy:.1f}%', f'{seconds:.0f} s')


def main(args: list[str] | None = None) -> None:
    """Run the quickstart."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--epochs', type=int, default=20, help='epochs on the digits; defaults to 20')
    parser.add_argument('--work-dir', default=str(ROOT / 'work_dirs/quickstart'), help='where the checkpoint goes')
    options = parser.parse_args(args)
    if options.epochs < 1:
        parser.error(f'--epochs should be at least 1, but got {options.epochs}')

    print('Published architectures at 224 x 224, 1000 classes, priced without building them:\n')
    print(table(['architecture', 'params (M)', 'MACs (G)', 'paper', 'paper'], price_zoo()))
    print(f'\nTraining a small one on 1,442 real digits at 32 x 32 for {options.epochs} epochs:')
    row = train_digits(options.work_dir, options.epochs)
    print('\n' + table(['network', 'params (M)', 'MACs (G)', 'accuracy on 355 test digits', 'time'], [row]))
    print(f'\nIts checkpoint and log: {options.work_dir}')


if __name__ == '__main__':
    main()
