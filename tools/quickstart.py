"""The quickstart: price the published architectures, build one, and train a small one on the embedded digits."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
from mmengine.config import Config
from mmengine.runner import Runner
from mmpretrain.registry import MODELS

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


def make_runner(work_dir: str, epochs: int) -> Runner:
    """A runner that trains the config's network on the digits and shows a bar instead of log lines."""
    cfg = Config.fromfile(CONFIG)
    cfg.work_dir = work_dir
    cfg.log_level = 'ERROR'
    cfg.train_cfg.max_epochs = cfg.train_cfg.val_interval = epochs
    cfg.param_scheduler[1].end = max(epochs, 4)
    cfg.custom_hooks = [dict(type='vitnas.ProgressHook')]
    return Runner.from_cfg(cfg)


def run_published(name: str, runner: Runner) -> list[str]:
    """Build a published architecture for the digits' image size and run it, untrained, on the test images."""
    start = time.perf_counter()
    backbone = dict(type='vitnas.AutoFormer', arch=name, img_size=32, patch_size=8, out_type='avg_featmap')
    head = dict(type='LinearClsHead', num_classes=10, in_channels=int(zoo.load_arch(name).stages[0]['embed_dim']))
    preprocessor = dict(runner.cfg.data_preprocessor, type='ClsDataPreprocessor')
    model = MODELS.build(dict(type='ImageClassifier', backbone=backbone, head=head, data_preprocessor=preprocessor))
    right = total = 0
    with torch.no_grad():
        for batch in Runner.build_dataloader(runner.cfg.test_dataloader):
            for sample in model.eval().test_step(batch):
                right += int(sample.pred_label == sample.gt_label)
                total += 1
    cost = model.backbone.price(name, 32, num_classes=10)
    assert cost.params == count_params(model)
    row = priced(f'{zoo.entry(name).title}, untrained', cost, f'{100 * right / total:.1f}%')
    return [*row, f'{time.perf_counter() - start:.0f} s']


def train_digits(runner: Runner) -> list[str]:
    """Train the config's network and test it on images that it has not seen."""
    start = time.perf_counter()
    runner.train()
    seconds = time.perf_counter() - start
    backbone = runner.model.backbone
    cost = backbone.price(backbone.arch, 32, num_classes=10)
    accuracy = runner.message_hub.get_scalar('val/accuracy/top1').current()
    name = f'AutoFormer, {backbone.depth} blocks, {backbone.embed_dims} wide, trained'
    return priced(name, cost, f'{accuracy:.1f}%', f'{seconds:.0f} s')


def main(args: list[str] | None = None) -> None:
    """Run the quickstart."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--epochs', type=int, default=20, help='epochs on the digits; defaults to 20')
    parser.add_argument('--work-dir', default=str(ROOT / 'work_dirs/quickstart'), help='where the checkpoint goes')
    options = parser.parse_args(args)
    if options.epochs < 1:
        parser.error(f'--epochs should be at least 1, but got {options.epochs}')

    print('Published architectures at 224 x 224, 1000 classes, priced without building them:\n')
    print(table(['architecture', 'params (M)', 'MACs (G)', 'params in paper', 'MACs in paper'], price_zoo()))
    print(f'\nBuilding AutoFormer-T; training a small one on 1,442 real digits, {options.epochs} epochs:')
    runner = make_runner(options.work_dir, options.epochs)
    rows = [run_published('autoformer-tiny', runner), train_digits(runner)]
    print('\n' + table(['network at 32 x 32', 'params (M)', 'MACs (G)', 'accuracy on 355 test digits', 'time'], rows))
    print(f'\nIts checkpoint and log: {options.work_dir}')


if __name__ == '__main__':
    main()
