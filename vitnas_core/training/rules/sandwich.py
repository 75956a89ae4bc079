"""Sandwich training: sum the gradients of several architectures, then update once (BigNAS, S3, NASViT)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mmengine.optim import OptimWrapper
from torch import Tensor

from ...backbones import unwrap
from ...errors import VitnasError
from ...integration.steps import add_gradients
from ...registry import CONFLICTS, MODELS, RULES
from ...spaces import Arch
from ..distillation import DistilledLoss, check_logits
from ..projection import GradientProjection
from ..samplers import ArchSampler
from ..teacher import Teacher
from .base import TrainingRule, reduced, update


@RULES.register_module()
class Sandwich(TrainingRule):
    """Sum the gradients of every architecture of a step, then update once.

    Args:
        distill (dict, optional): Loss between a subnet's logits and those of the largest architecture, the first of
            the step: ``dict(type='vitnas.KLDivergence')`` or ``dict(type='vitnas.AdaptiveAlphaDivergence')``. The
            others then learn from the largest alone (in-place distillation, BigNAS, Sec. 3.1). Defaults to None: they
            learn from the labels (S3, Sec. 2.3).
        teacher (dict, optional): A trained network, e.g. ``dict(type='vitnas.Teacher', models=…)``. The largest
            architecture learns from it by cross-entropy, not from the labels (NASViT, Sec. 2). Defaults to None.
        conflict (dict, optional): What to do where the gradients of the largest and of the others disagree, e.g.
            ``dict(type='vitnas.GradientProjection', keep='subnets')`` (NASViT, Eq. 1). Defaults to None.
    """

    def __init__(self, distill: dict | None = None, teacher: dict | None = None, conflict: dict | None = None) -> None:
        self.distill = None if distill is None else MODELS.build(distill)
        self.teacher: Teacher | None = None if teacher is None else MODELS.build(teacher)
        self.conflict: GradientProjection | None = None if conflict is None else CONFLICTS.build(conflict)

    def check(self, sampler: ArchSampler, model: Any) -> None:
        """Refuse a sampler without the largest architecture first, and distillation without logits."""
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
        if self.distill is not None or self.teacher is not None:
            check_logits(model, self.distill)

    def step(self, model: Any, batch: Any, archs: list[Arch], optim_wrapper: OptimWrapper) -> dict[str, Tensor]:
        """Run every architecture forward and backward on the same augmented batch, then update."""
        with optim_wrapper.optim_context(model):
            data = unwrap(model).data_preprocessor(batch, True)
        loss_of, losses = self.objective(model, data), []
        for i, arch in enumerate(archs):
            first, last = i == 0, i + 1 == len(archs)
            # Gradients that are compared are exchanged one by one.
            with reduced(model, last or (first and self.conflict is not None)), optim_wrapper.optim_context(model):
                loss = loss_of(arch)
            add_gradients(optim_wrapper, loss, last)
            losses.append(loss.detach())
            if first and self.conflict is not None:
                self.conflict.set_aside(model, optim_wrapper)
        if self.conflict is not None:
            self.conflict.combine(optim_wrapper)
        update(optim_wrapper)
        return {'loss': sum(losses[1:], losses[0]), **{f'loss_arch{i}': loss for i, loss in enumerate(losses)}}

    def objective(self, model: Any, data: Any) -> Callable[[Arch], Tensor]:
        """Return a function from an architecture to its loss; the first one is the largest if anything is distilled."""
        if self.distill is None and self.teacher is None:
            return super().objective(model, data)
        return DistilledLoss(self.backbone, model, data, self.distill, self.teacher)
