"""What a training rule is, and the steps that rules share."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from mmengine.optim import OptimWrapper
from torch import Tensor

from ...backbones import elastic_backbone, unwrap
from ...spaces import Arch
from ..samplers import ArchSampler


class TrainingRule:
    """Turns a batch and the architectures of a step into gradients and an update."""

    def check(self, sampler: ArchSampler, model: Any) -> None:
        """Refuse a sampler or a model that this rule cannot train; called when the loop is built.

        Raises:
            VitnasError: They do not fit, and why.
        """

    def step(self, model: Any, batch: Any, archs: list[Arch], optim_wrapper: OptimWrapper) -> dict[str, Tensor]:
        """Train one step.

        Args:
            model: The model, perhaps wrapped for distributed training.
            batch: What the data loader gave.
            archs: What the sampler drew; the same on every rank.
            optim_wrapper: Accumulates, clips, scales and updates.

        Returns:
            What is logged.
        """
        raise NotImplementedError

    def losses(self, model: Any, data: Any, archs: list[Arch]) -> Iterator[Tensor]:
        """The loss of one architecture after another, each computed when it is asked for; it stays the active one.

        Args:
            model: The model, perhaps wrapped for distributed training.
            data: A batch that the model's data preprocessor made.
            archs: The architectures, the largest first.
        """
        backbone = elastic_backbone(model)
        for arch in archs:
            backbone.set_arch(arch)
            yield label_loss(model, data)


def label_loss(model: Any, data: Any) -> Tensor:
    """The loss of the active architecture against the labels."""
    return unwrap(model).parse_losses(model._run_forward(data, mode='loss'))[0]


def reduced(model: Any, last: bool) -> contextlib.AbstractContextManager:
    """For one architecture of several: where ``last`` of them, ranks exchange the gradients of all so far."""
    return contextlib.nullcontext() if last or not hasattr(model, 'no_sync') else model.no_sync()


def add_gradients(optim_wrapper: OptimWrapper, loss: Tensor, last: bool) -> None:
    """Add the gradients of one architecture's loss; the wrapper counts a step once, not once an architecture."""
    count = optim_wrapper._inner_count
    optim_wrapper.backward(optim_wrapper.scale_loss(loss))
    if not last:
        optim_wrapper._inner_count = count


def update(optim_wrapper: OptimWrapper) -> None:
    """Update the weights where the wrapper's accumulation is complete."""
    if optim_wrapper.should_update():
        optim_wrapper.step()
        optim_wrapper.zero_grad()
