"""Recalibrate batch norms for one architecture: a supernet's training leaves statistics of all architectures."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any

import torch
from mmcv.ops import SyncBatchNorm
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ..backbones import elastic_backbone
from ..elastic import ElasticBatchNorm2d, prefix
from ..spaces import Arch


def batch_norms(model: nn.Module) -> dict[str, nn.Module]:
    """Return the batch norms that use the statistics of a batch in training, by name; frozen ones do not."""
    modes = {module: module.training for module in model.modules()}
    model.train()  # models freeze batch norms here
    kinds = (_BatchNorm, SyncBatchNorm)
    found = {name: module for name, module in model.named_modules() if isinstance(module, kinds) and module.training}
    for module, training in modes.items():
        module.training = training
    return found


def elastic_norms(model: nn.Module) -> list[str]:
    """Return the names of the batch norms whose statistics differ between architectures."""
    return [name for name, norm in batch_norms(model).items() if isinstance(norm, ElasticBatchNorm2d)]


def calibrate(
    model: Any,
    arch: Arch | None,
    batches: Iterable[Any],
    run: Callable[[Any], Any] | None = None,
    average: bool = False,
) -> dict[str, nn.Module]:
    """Switch a model to an architecture and give batch norms its statistics; see :func:`recalibrate`.

    Args:
        model: An mm model.
        arch: The architecture of its elastic backbone; None for the active one.
        batches: The batches.
        run: Sends a batch through the model. Defaults to None: ``model.val_step``, for batches from a dataloader.
        average: As for :func:`recalibrate`. Defaults to False.

    Returns:
        The recalibrated batch norms, by name; empty if the model has none, or only frozen ones.
    """
    if arch is not None:
        elastic_backbone(model).set_arch(arch)
    return recalibrate(model, run or model.val_step, batches, average)


@torch.no_grad()
def recalibrate(
    model: nn.Module, run: Callable[[Any], Any], batches: Iterable[Any], average: bool = False
) -> dict[str, nn.Module]:
    """Give batch norms the statistics of their inputs at the active architecture, in one pass over some images.

    Each batch is normalised by its own mean and variance, as in training; everything else runs as in a test. The
    statistics of all batches then become the running mean and variance. An extracted network keeps them; the next
    architecture needs its own. Frozen batch norms stay. Ranks do not exchange anything.

    Args:
        model: The model at its architecture.
        run: Sends a batch through the model, e.g. ``model.val_step``.
        batches: The batches.
        average: Take the plain mean of the batches' means and variances, as NASViT's code does. Defaults to False: the
            exact mean and variance over all batches.

    Returns:
        The recalibrated batch norms, by name: those that the architecture has.
    """
    norms = {name: norm for name, norm in batch_norms(model).items() if norm.track_running_stats}
    if not norms:
        return {}
    seen = {name: _Seen(average) for name in norms}
    modes = {module: module.training for module in model.modules()}
    with ExitStack() as stack:
        for name, norm in norms.items():
            stack.callback(norm.register_forward_pre_hook(seen[name].take).remove)
        try:
            model.eval()
            for batch in batches:
                run(batch)
        finally:
            for module, training in modes.items():
                module.training = training
    for name, norm in norms.items():
        if seen[name].count:
            _write(norm, seen[name].mean, seen[name].variance())
    return {name: norm for name, norm in norms.items() if seen[name].count}


class _Seen:
    """Statistics of the batches that a batch norm has seen, merged in double precision."""

    def __init__(self, average: bool) -> None:
        self.average = average
        self.count = 0
        """Number of pixels; of batches if their statistics are averaged."""
        self.mean: Any = 0.0
        self.squares: Any = 0.0
        """Sum of squared deviations; of the batches' variances if these are averaged."""

    def take(self, norm: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        """Add a batch, and let the norm, which runs as in a test, normalise the batch by its own statistics."""
        x = inputs[0]
        if not x.numel():
            return
        pixels = x.numel() // x.shape[1]
        axes = [axis for axis in range(x.ndim) if axis != 1]
        var, mean = torch.var_mean(x.double(), axes, correction=0)
        _write(norm, mean, var)
        if self.average:
            count, squares, apart = 1, var * (pixels / max(1, pixels - 1)), 0.0
        else:
            count, squares, apart = pixels, var * pixels, mean - self.mean
        total = self.count + count
        self.squares = self.squares + squares + apart * apart * (self.count * count / total)
        self.mean = self.mean + (mean - self.mean) * (count / total)
        self.count = total

    def variance(self) -> Tensor:
        """Return the unbiased variance over all batches."""
        return self.squares / (self.count if self.average else max(1, self.count - 1))


def _write(norm: nn.Module, mean: Tensor, variance: Tensor) -> None:
    """Set the first entries of the running statistics."""
    for buffer, value in ((norm.running_mean, mean), (norm.running_var, variance)):
        assert isinstance(buffer, Tensor)
        prefix(buffer, len(value)).copy_(value)
