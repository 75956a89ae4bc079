"""Single-path training: one architecture per step (AutoFormer, FocusFormer)."""

from __future__ import annotations

from typing import Any

from mmengine.optim import OptimWrapper
from torch import Tensor

from ...errors import VitnasError
from ...registry import RULES
from ...spaces import Arch
from ..samplers import ArchSampler
from .base import TrainingRule


@RULES.register_module()
class SinglePath(TrainingRule):
    """Train the only architecture of a step by mmengine's own ``train_step``."""

    def check(self, sampler: ArchSampler, model: Any) -> None:
        """Refuse a sampler of several architectures."""
        if sampler.num_archs != 1:
            raise VitnasError(
                f'vitnas.SinglePath trains one architecture per step, but {type(sampler).__name__} draws '
                f'{sampler.num_archs}; use rule=dict(type="vitnas.Sandwich")'
            )

    def step(self, model: Any, batch: Any, archs: list[Arch], optim_wrapper: OptimWrapper) -> dict[str, Tensor]:
        """Run one ordinary training step of the architecture."""
        self.backbone.set_arch(archs[0])
        return model.train_step(batch, optim_wrapper=optim_wrapper)
