"""Mixed precision in bfloat16: no loss scaling, on CPUs too."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from mmengine.optim import OptimWrapper
from torch import nn

from ..integration.bfloat16 import bfloat16_in_float32
from ..registry import OPTIM_WRAPPERS


@OPTIM_WRAPPERS.register_module()
class BFloat16OptimWrapper(OptimWrapper):
    """mmengine's ``OptimWrapper`` with the forward pass under bfloat16 autocast.

    mmengine's ``AmpOptimWrapper`` refuses the CPU. Arguments, accumulation and clipping are unchanged. What mmcv and
    mmdet cannot do in bfloat16 runs in float32 (:func:`~vitnas_core.integration.bfloat16.bfloat16_in_float32`).
    """

    @contextlib.contextmanager
    def optim_context(self, model: nn.Module) -> Iterator[None]:
        """Autocast on the model's device; ranks exchange no gradients while they accumulate."""
        bfloat16_in_float32()  # here, as the model's toolbox is imported by now
        device = next(model.parameters()).device.type
        with super().optim_context(model), torch.autocast(device, torch.bfloat16):
            yield
