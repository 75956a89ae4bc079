"""Sandwich training: the gradients of several architectures are summed, then one update (BigNAS, S3, NASViT)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from mmengine.optim import OptimWrapper
from torch import Tensor, nn

from ...backbones import elastic_backbone, unwrap
from ...errors import VitnasError
from ...registry import CONFLICTS, MODELS, RULES
from ...spaces import Arch
from ..distillation import precise
from ..projection import GradientProjection
from ..samplers import ArchSampler
from ..teacher import Teacher
from .base import TrainingRule, add_gradients, label_loss, reduced, update


@RULES.register_module()
class Sandwich(TrainingRule):
    """Sum the gradients of every architecture of the step, then update once.

    Args:
        distill (dict, optional): Loss between a subnet's logits and those of the step's first, the largest
            architecture: ``dict(type='vitnas.KLDivergence')``, ``dict(type='vitnas.SoftCrossEntropy')`` or
            ``dict(type='vitnas.AdaptiveAlphaDivergence')``. The others then learn from the largest alone (in-place
            distillation, BigNAS, Sec. 3.1). Defaults to None: they learn from the labels (S3, Sec. 2.3).
        teacher (dict, optional): A trained network, e.g. ``dict(type='vitnas.Teacher', models=…)``, of which the
            largest architecture learns by cross-entropy, not from the labels (NASViT, Sec. 2). Defaults to None: it
            learns from the labels.
        conflict (dict, optional): What to do where the gradients of the largest and of the others disagree, e.g.
            ``dict(type='vitnas.GradientProjection', keep='subnets')`` (NASViT, Eq. 1). Defaults to None.
    """

    def __init__(self, distill: dict | None = None, teacher: dict | None = None, conflict: dict | None = None) -> None:
        self.distill = None if distill is None else MODELS.build(distill)
        self.teacher: Teacher | None = None if teacher is None else MODELS.build(teacher)
        self.conflict: GradientProjection | None = None if conflict is None else CONFLICTS.build(conflict)

    def check(self, sampler: ArchSampler, model: Any) -> None:
        """What tells the largest architecture from others needs it first; distillation needs a head with logits."""
        for name, part, verb in (
            ('distill', self.distill, 'learns from'),
            ('teacher', self.teacher, 'teaches'),
            ('conflict', self.conflict, 'compares others with'),
        ):
            if part is not None and not sampler.largest_first:
                raise VitnasError(
                    f'`{name}` of vitnas.Sandwich {verb} the largest architecture, which '
                    f'{type(sampler).__name__} does not draw first; use sampler=dict(type="vitnas.SandwichSampler")'
                )
        if self._needs_logits and not isinstance(getattr(model, 'head', None), nn.Module):
            raise VitnasError(self._no_logits(model))

    def step(self, model: Any, batch: Any, archs: list[Arch], optim_wrapper: OptimWrapper) -> dict[str, Tensor]:
        """Forward and backward each architecture on the same augmented batch, then update."""
        with optim_wrapper.optim_context(model):
            data = unwrap(model).data_preprocessor(batch, True)
        coming, losses = self.losses(model, data, archs), []
        for i in range(len(archs)):
            first, last = i == 0, i + 1 == len(archs)
            # Gradients that are to be compared are exchanged each for itself.
            with reduced(model, last or (first and self.conflict is not None)), optim_wrapper.optim_context(model):
                loss = next(coming)
            add_gradients(optim_wrapper, loss, last)
            losses.append(loss.detach())
            if first and self.conflict is not None:
                self.conflict.set_aside(model, optim_wrapper)
        if self.conflict is not None:
            self.conflict.combine(model, optim_wrapper)
        update(optim_wrapper)
        return {'loss': sum(losses), **{f'loss_arch{i}': loss for i, loss in enumerate(losses)}}  # type: ignore[dict-item]

    def losses(self, model: Any, data: Any, archs: list[Arch]) -> Iterator[Tensor]:
        """The loss of each architecture; the first is the largest where something is distilled."""
        if not self._needs_logits:
            yield from super().losses(model, data, archs)
            return
        backbone, largest = elastic_backbone(model), None
        target = None if self.teacher is None else self.teacher(data['inputs'])
        for arch in archs:
            backbone.set_arch(arch)
            loss, logits = self._loss_and_logits(model, data)
            if largest is None:
                largest = logits.detach()
                yield loss if target is None else _soft_cross_entropy(logits, target)
            else:
                yield loss if self.distill is None else self.distill(logits, largest)

    @property
    def _needs_logits(self) -> bool:
        return self.distill is not None or self.teacher is not None

    def _no_logits(self, model: Any) -> str:
        part = 'distill' if self.distill is not None else 'teacher'
        return (
            f'`{part}` of vitnas.Sandwich needs a model whose head gives its logits as one tensor, as classifiers do; '
            f'{type(unwrap(model)).__name__} does not'
        )

    def _loss_and_logits(self, model: Any, data: Any) -> tuple[Tensor, Tensor]:
        """The active architecture's loss against the labels, and its logits."""
        with _logits_of(unwrap(model)) as seen:
            loss = label_loss(model, data)
        if len(seen) != 1 or not isinstance(seen[0], Tensor):
            raise VitnasError(self._no_logits(model))
        return loss, seen[0]


def _soft_cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """− Σ target log p, the mean over samples."""
    if logits.shape != target.shape:
        raise VitnasError(
            f'the teacher of vitnas.Sandwich should know the classes of the model, but it has {target.shape[-1]} and '
            f'the head of the model has {logits.shape[-1]}'
        )
    return -(target * precise(logits).log_softmax(-1)).sum(-1).mean()


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
