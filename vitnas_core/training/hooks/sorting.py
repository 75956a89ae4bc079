"""Sort heads and hidden units by importance, so that small architectures get the most important (ViT-ResNAS)."""

from __future__ import annotations

from typing import Any

import torch
from mmengine.hooks import EMAHook, Hook
from mmengine.optim import OptimWrapper
from mmengine.runner import Runner

from ...backbones import elastic_backbone
from ...elastic import importance_orders
from ...errors import VitnasError
from ...registry import HOOKS
from ...utils import checks
from ..projection import ASIDE


@HOOKS.register_module()
class SortChannelsHook(Hook):
    """Sort the heads and hidden units of every block at the start of an epoch, most important first.

    The largest architecture computes the same as before; smaller ones get its most important parts. The optimizer's
    state of each weight moves along, which the published code forgets. The paper does not mention the sorting.

    Args:
        until: Fraction of the training in which channels are sorted. Defaults to 0.25, while the space opens.

    Raises:
        VitnasError: ``until`` is not from 0 to 1. When a training starts: it is not by epochs, it averages weights, or
            the backbone's settings do not allow sorting.
    """

    def __init__(self, until: float = 0.25) -> None:
        self.until = checks.rate('until', until)

    def before_train(self, runner: Runner) -> None:
        """Refuse a training by iterations, averaged weights, and a backbone whose channels cannot move."""
        if not getattr(runner.train_loop, 'by_epoch', True) or runner.max_epochs < 2:
            raise VitnasError(
                'vitnas.SortChannelsHook sorts at the start of epochs: give the loop `max_epochs` above 1'
            )
        if not isinstance(runner.optim_wrapper, OptimWrapper):
            raise VitnasError('vitnas.SortChannelsHook needs one optimizer for the whole model')
        if any(isinstance(hook, EMAHook) for hook in runner.hooks):
            raise VitnasError(
                'vitnas.SortChannelsHook changes the order of weights, of which EMAHook keeps averages: use one of them'
            )
        backbone = elastic_backbone(runner.model)
        if reason := backbone.why_not_sorted():
            raise VitnasError(reason)
        importance_orders(backbone)  # refuses patterns

    @torch.no_grad()
    def before_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None) -> None:
        """Sort in the first iteration of an epoch; a training resumed in the middle of one has sorted."""
        if batch_idx or runner.epoch > self.until * runner.max_epochs:
            return
        state = runner.optim_wrapper.optimizer.state
        for change in importance_orders(elastic_backbone(runner.model)):
            weight = change.weight
            gathered = [t for t in state.get(weight, {}).values() if isinstance(t, torch.Tensor)]
            waiting = (weight.grad, getattr(weight, ASIDE, None))  # accumulated over steps
            gathered += [gradient for gradient in waiting if gradient is not None]
            for tensor in (weight, *(t for t in gathered if t.shape == weight.shape)):
                change.apply(tensor)
