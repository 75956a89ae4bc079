"""Report the quality of a supernet during training: its largest, its smallest and some random architectures."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
from mmengine.dist import is_main_process
from mmengine.hooks import Hook
from mmengine.runner import Runner

from ...backbones import elastic_backbone, unwrap
from ...costs import Cost
from ...errors import VitnasError
from ...evaluation import score_all
from ...integration.runner import averaged_weights
from ...registry import HOOKS
from ...spaces import Arch
from ...utils import checks
from ...utils.fileio import atomic_write
from .recalibrate import RecalibrateHook

COLUMNS = ('epoch', 'iter', 'name', 'metric', 'value', 'macs', 'params')
"""Columns of the CSV file, with one row per architecture and metric."""

Row = dict[str, Any]


@HOOKS.register_module()
class SupernetReportHook(Hook):
    """Evaluate the same few architectures on the val data at regular intervals; log and store the results.

    ``supernet_report.csv`` in the work dir holds all results. A resumed training drops the rows of steps that it
    repeats. If there is an ``EMAHook``, its averaged weights are evaluated.

    Args:
        interval: Number of epochs (or iterations, if the loop counts these) between two reports; the last one is
            always reported. Defaults to 1.
        num_random: Number of random architectures. Defaults to 3.
    """

    priority = 'LOW'  # after hooks that change weights, before the checkpoint hook
    filename = 'supernet_report.csv'

    def __init__(self, interval: int = 1, num_random: int = 3) -> None:
        self.interval = checks.whole('interval', interval)
        self.num_random = checks.whole('num_random', num_random, 0)

    def before_train(self, runner: Runner) -> None:
        """Choose the architectures and drop rows that will be written again."""
        if runner.val_loop is None:
            raise VitnasError('vitnas.SupernetReportHook needs val_dataloader, val_cfg and val_evaluator')
        space, rng = elastic_backbone(runner.model).space, np.random.default_rng(0)
        self.archs: dict[str, Arch] = {'largest': space.largest(), 'smallest': space.smallest()}
        self.archs.update({f'random_{i}': space.sample(rng) for i in range(self.num_random)})
        self.by_epoch = getattr(runner.train_loop, 'by_epoch', True)
        path = Path(runner.work_dir) / self.filename
        kept = [row for row in read_report(path) if int(row['iter']) <= runner.iter] if path.is_file() else []
        if is_main_process():
            _write(path, kept)

    def after_train_epoch(self, runner: Runner) -> None:
        """Report if it is due by epochs."""
        if self.by_epoch and (self.every_n_epochs(runner, self.interval) or self.is_last_train_epoch(runner)):
            self._report(runner, runner.epoch + 1, runner.iter)

    def after_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
        """Report if it is due by iterations."""
        if not self.by_epoch and (self.every_n_train_iters(runner, self.interval) or self.is_last_train_iter(runner)):
            self._report(runner, runner.epoch, runner.iter + 1)

    def _report(self, runner: Runner, epoch: int, step: int) -> None:
        rows: list[Row] = []
        with averaged_weights(runner):
            results = self._score(runner)
            runner.model.train()
        for name, (metrics, cost) in results.items():
            same = dict(epoch=epoch, iter=step, name=name, macs=cost.macs, params=cost.params)
            rows += [{**same, 'metric': metric, 'value': value} for metric, value in metrics.items()]
        if is_main_process():
            path = Path(runner.work_dir) / self.filename
            _write(path, [*read_report(path), *rows])
            runner.visualizer.add_scalars({f'supernet/{r["name"]}/{r["metric"]}': r['value'] for r in rows}, step=step)
            words = ', '.join(f'{r["name"]} {r["value"]:.4g}' for r in rows if r['metric'] == rows[0]['metric'])
            runner.logger.info(f'Supernet({rows[0]["metric"]}) {words}')

    def _score(self, runner: Runner) -> dict[str, tuple[dict[str, Any], Cost]]:
        """Return metrics and cost of each architecture."""
        hooks = [hook for hook in runner.hooks if isinstance(hook, RecalibrateHook)]

        def recalibrate(arch: Arch) -> None:
            for hook in hooks:
                hook.recalibrate(runner, arch)

        model, data, evaluator = unwrap(runner.model), runner.val_dataloader, runner.val_evaluator
        return score_all(model, data, len(data.dataset), evaluator, self.archs, recalibrate if hooks else None)


def read_report(path: Path) -> list[Row]:
    """Read the rows of a report's CSV file."""
    with open(path, newline='') as file:
        return list(csv.DictReader(file))


def _write(path: Path, rows: list[Row]) -> None:
    text = io.StringIO(newline='')
    writer = csv.DictWriter(text, COLUMNS, lineterminator='\n')
    writer.writeheader()
    writer.writerows(rows)
    atomic_write(path, text.getvalue())
