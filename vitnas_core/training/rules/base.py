"""Base class of training rules."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from mmengine.optim import OptimWrapper
from torch import Tensor

from ...backbones import ElasticBackbone
from ...integration.steps import label_loss
from ...spaces import Arch
from ..samplers import ArchSampler


class TrainingRule(ABC):
    """Turn a batch and the architectures of a step into gradients and an update."""

    backbone: ElasticBackbone
    """The elastic backbone of the model; :meth:`bind` sets it."""

    def bind(self, backbone: ElasticBackbone) -> None:
        """Get ready to train a model; called once, when the loop is built.

        Args:
            backbone: The elastic backbone of the model.
        """
        self.backbone = backbone

    def check(self, sampler: ArchSampler, model: Any) -> None:  # noqa: B027  (a rule may fit any)
        """Refuse a sampler or a model that this rule cannot train; called when the loop is built.

        Raises:
            VitnasError: They do not fit.
        """

    @abstractmethod
    def step(self, model: Any, batch: Any, archs: list[Arch], optim_wrapper: OptimWrapper) -> dict[str, Tensor]:
        """Train one step.

        Args:
            model: The model, perhaps wrapped for distributed training.
            batch: A batch from the data loader.
            archs: Architectures from the sampler, the same on every rank.
            optim_wrapper: Accumulates, clips, scales and updates.

        Returns:
            Values to log.
        """

    def objective(self, model: Any, data: Any) -> Callable[[Arch], Tensor]:
        """Return a function from an architecture to its loss, which leaves the architecture active.

        Call it with the architectures of one step in their order, as they may learn from the first one.

        Args:
            model: The model, perhaps wrapped for distributed training.
            data: A batch from the model's data preprocessor.
        """

        def loss(arch: Arch) -> Tensor:
            self.backbone.set_arch(arch)
            return label_loss(model, data)

        return loss


def reduced(model: Any, last: bool) -> contextlib.AbstractContextManager:
    """Return the context of one backward pass out of several: ranks exchange the sum of all gradients in the last."""
    return contextlib.nullcontext() if last or not hasattr(model, 'no_sync') else model.no_sync()


def update(optim_wrapper: OptimWrapper) -> None:
    """Update the weights if the wrapper has accumulated enough."""
    if optim_wrapper.should_update():
        optim_wrapper.step()
        optim_wrapper.zero_grad()
