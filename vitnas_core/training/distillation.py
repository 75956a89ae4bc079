"""Losses between a subnet's logits and those of the largest architecture, for in-place distillation."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import VitnasError
from ..registry import MODELS


class _Distillation(nn.Module):
    def __init__(self, temperature: float = 1.0) -> None:
        super().__init__()
        if not temperature > 0:
            raise VitnasError(f'`temperature` should be above 0, but got {temperature!r}')
        self.temperature = temperature


@MODELS.register_module()
class SoftCrossEntropy(_Distillation):
    """− Σ p_teacher log p_student, the mean over samples (BigNAS's and slimmable networks' form).

    Args:
        temperature: Both logits are divided by it; the loss is multiplied by its square. Defaults to 1.
    """

    def forward(self, student: Tensor, teacher: Tensor) -> Tensor:
        """(B, classes), (B, classes) → a scalar, in float32 at least."""
        t = self.temperature
        log_q = F.log_softmax(_precise(student) / t, -1)
        return -(F.softmax(_precise(teacher) / t, -1) * log_q).sum(-1).mean() * t**2


@MODELS.register_module()
class KLDivergence(_Distillation):
    """Σ p_teacher (log p_teacher − log p_student), the mean over samples; gradients equal the cross-entropy's.

    Args:
        temperature: Both logits are divided by it; the loss is multiplied by its square. Defaults to 1.
    """

    def forward(self, student: Tensor, teacher: Tensor) -> Tensor:
        """(B, classes), (B, classes) → a scalar, in float32 at least."""
        t = self.temperature
        log_q, log_p = F.log_softmax(_precise(student) / t, -1), F.log_softmax(_precise(teacher) / t, -1)
        return F.kl_div(log_q, log_p, reduction='batchmean', log_target=True) * t**2


def _precise(logits: Tensor) -> Tensor:
    return logits if logits.dtype.itemsize >= 4 else logits.float()
