"""Recalibrate batch norms before a supernet is validated: training mixes all architectures (NASViT)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mmengine.hooks import Hook
from mmengine.runner import Runner

from ...backbones import unwrap
from ...errors import VitnasError
from ...evaluation import KeptBatches, calibrate, whole_loader
from ...registry import HOOKS
from ...spaces import Arch
from ...utils import checks


@HOOKS.register_module()
class RecalibrateHook(Hook):
    """Give batch norms the statistics of an architecture before it is validated.

    The training loop validates the largest one, ``vitnas.SupernetReportHook`` several. Images are decoded once and
    kept in memory. Training does not use the statistics, and its next steps change them again.

    Args:
        dataloader: Config of the images, e.g. the hold-out part of the training set, taken in one fixed random order.
        num_batches: Number of batches. Defaults to 64, as published.
        average: Take the plain mean of the batches' means and variances, as NASViT's code does. Defaults to False: the
            exact mean and variance over all images.

    Raises:
        VitnasError: ``num_batches`` is below 1. When a validation starts: the model has no batch norm.
    """

    priority = 'LOW'  # after EMAHook has put averaged weights in place

    def __init__(self, dataloader: Mapping[str, Any], num_batches: int = 64, average: bool = False) -> None:
        self.dataloader, self.average = dataloader, average
        self.num_batches = checks.whole('num_batches', num_batches)
        self._batches: KeptBatches | None = None

    def before_val_epoch(self, runner: Runner) -> None:
        """Recalibrate the active architecture."""
        self.recalibrate(runner)

    def recalibrate(self, runner: Runner, arch: Arch | None = None) -> None:
        """Recalibrate an architecture, which becomes the active one. Defaults to None: the active one."""
        if self._batches is None:
            # The same images on every rank give the same statistics.
            self._batches = KeptBatches(whole_loader(self.dataloader, seed=runner.seed))
        batches = self._batches.first(self.num_batches)
        if not calibrate(unwrap(runner.model), arch, batches, average=self.average):
            raise VitnasError('vitnas.RecalibrateHook is for models with batch norms that are not frozen; leave it out')
