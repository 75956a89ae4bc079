"""Recalibrate batch norms before a supernet is validated: training mixes all architectures (NASViT)."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from itertools import islice
from typing import Any

from mmengine.hooks import Hook
from mmengine.runner import Runner

from ...backbones import unwrap
from ...errors import VitnasError
from ...evaluation import recalibrate
from ...registry import HOOKS


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
        if type(num_batches) is not int or num_batches < 1:
            raise VitnasError(f'`num_batches` should be a whole number of at least 1, but got {num_batches!r}')
        self.dataloader, self.num_batches, self.average = dataloader, num_batches, average
        self._batches: list[Any] = []

    def before_val_epoch(self, runner: Runner) -> None:
        """Recalibrate the active architecture."""
        self.recalibrate(runner)

    def recalibrate(self, runner: Runner) -> None:
        """Recalibrate the active architecture."""
        model = unwrap(runner.model)
        if not self._batches:
            # The same images on every rank give the same statistics.
            config = {**copy.deepcopy(dict(self.dataloader)), 'sampler': dict(type='vitnas.WholeSampler')}
            loader = runner.build_dataloader(config, seed=runner.seed)
            self._batches = [copy.deepcopy(batch) for batch in islice(loader, self.num_batches)]
        if not recalibrate(model, model.val_step, self._batches, self.average):
            raise VitnasError('vitnas.RecalibrateHook is for models with batch norms that are not frozen; leave it out')
