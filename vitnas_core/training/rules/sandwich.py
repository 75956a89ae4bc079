"""Sandwich training: the gradients of several architectures are summed, then one update (BigNAS, S3, NASViT)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from mmengine.optim import OptimWrapper
from torch import Tensor, nn

from ...backbones import elastic_backbone, unwrap
from ...errors import VitnasError
from ...registry import MODELS, RULES
from ...spaces import Arch
from ..samplers import ArchSampler
from .base import TrainingRule, add_gradients, reduced, update

_NO_LOGITS = '`distill` of vitnas.Sandwich needs a model whose head gives its logits as one tensor, as classifiers do'


@RULES.register_module()
class Sandwich(TrainingRule):
    """Sum the gradients of every architecture of the step, then update once.

    Args:
        distill (dict, optional): Loss between a subnet's logits and those of the step's first, the largest
            architecture: ``dict(type='vitnas.KLDivergence')`` or ``dict(type='vitnas.SoftCrossEntropy')``.
            The largest then learns from the labels, the others from it alone (in-place distillation,
            BigNAS, Sec. 3.1). Defaults to None: every subnet learns from the labels (S3, Sec. 2.3).
    """

    def __init__(self, distill: dict | None = None) -> None:
        self.distill = None if distill is None else MODELS.build(distill)

    def check(self, sampler: ArchSampler, model: Any) -> None:
        """In-place distillation needs the largest architecture first, and a head with logits."""
        if self.distill is not None and not sampler.largest_first:
            raise VitnasError(
                f'`distill` of vitnas.Sandwich learns from the largest architecture, which '
                f'{type(sampler).__name__} does not draw first; use sampler=dict(type="vitnas.SandwichSampler")'
            )

        if self.distill is not None and not isinstance(getattr(model, 'head', None), nn.Module):
            raise VitnasError(f'{_NO_LOGITS}; {type(model).__name__} does not')

    def step(self, model: Any, batch: Any, archs: list[Arch], optim_wrapper: OptimWrapper) -> dict[str, Tensor]:
        """Forward and backward each architecture on the same augmented batch, then update."""
        backbone = elastic_backbone(model)
        with optim_wrapper.optim_context(model):
            data = unwrap(model).data_preprocessor(batch, True)
        losses: list[Tensor] = []
        teacher: Tensor | None = None
        for arch in archs:
            last = len(losses) + 1 == len(archs)
            backbone.set_arch(arch)
            with reduced(model, last), optim_wrapper.optim_context(model):
                loss, logits = self._loss(model, data, teacher)
            add_gradients(optim_wrapper, loss, last)
            losses.append(loss.detach())
            if teacher is None and logits is not None:
                teacher = logits.detach()
        update(optim_wrapper)
        return {'loss': sum(losses), **{f'loss_arch{i}': loss for i, loss in enumerate(losses)}}  # type: ignore[dict-item]

    def _loss(self, model: Any, data: Any, teacher: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """The loss of the active architecture, and its logits where something is distilled."""
        if self.distill is None:
            return unwrap(model).parse_losses(model._run_forward(data, mode='loss'))[0], None
        with _logits_of(unwrap(model)) as seen:
            loss = unwrap(model).parse_losses(model._run_forward(data, mode='loss'))[0]
        if len(seen) != 1 or not isinstance(seen[0], Tensor):
            raise VitnasError(f'{_NO_LOGITS}; {type(unwrap(model)).__name__} does not')
        return (loss if teacher is None else self.distill(seen[0], teacher)), seen[0]


@contextlib.contextmanager
def _logits_of(model: Any) -> Iterator[list[Any]]:
    """What the head returns meanwhile, so that one pass gives the loss and the logits."""
    head, seen = getattr(model, 'head', None), []  # type: ignore[var-annotated]
    if not isinstance(head, nn.Module):
        yield seen
        return
    handle = head.register_forward_hook(lambda module, args, output: seen.append(output))
    try:
        yield seen
    finally:
        handle.remove()
