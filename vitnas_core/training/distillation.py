"""Losses between a subnet's logits and those of the largest architecture, for in-place distillation."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import VitnasError
from ..registry import MODELS

_SAME = 1e-3
"""How near an α is to 0 or 1 that is taken for it, as in the published code."""


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
        log_q = F.log_softmax(precise(student) / t, -1)
        return -(F.softmax(precise(teacher) / t, -1) * log_q).sum(-1).mean() * t**2


@MODELS.register_module()
class KLDivergence(_Distillation):
    """Σ p_teacher (log p_teacher − log p_student), the mean over samples; gradients equal the cross-entropy's.

    Args:
        temperature: Both logits are divided by it; the loss is multiplied by its square. Defaults to 1.
    """

    def forward(self, student: Tensor, teacher: Tensor) -> Tensor:
        """(B, classes), (B, classes) → a scalar, in float32 at least."""
        t = self.temperature
        log_q, log_p = F.log_softmax(precise(student) / t, -1), F.log_softmax(precise(teacher) / t, -1)
        return F.kl_div(log_q, log_p, reduction='batchmean', log_target=True) * t**2


@MODELS.register_module()
class AdaptiveAlphaDivergence(nn.Module):
    """Of two α-divergences between teacher p and student q the larger one, sample by sample (AlphaNet, NASViT).

    With r = p / q the divergence of α is 1 / (α (α − 1)) Σ q (r^α − 1); α = 1 is the Kullback-Leibler divergence of
    p from q and α = 0 that of q from p. A small α punishes a student that is sure where the teacher is not, a large
    one a student that misses what the teacher sees. What is returned is − Σ q ρ ln q, where the weights q ρ are
    constants: it has the gradient of the divergence, but not its value, and may be negative. As in the published code
    r^α is at most ``clip``, but for α = 1.

    The published code divides probabilities, and so gives NaN where the student's is too small for a float. Ratios
    are differences of logarithms here, which are finite for all finite logits.

    Args:
        alpha_min: The smaller α. Defaults to -1.
        alpha_max: The larger α, which also decides a tie. Defaults to 1.
        clip: Largest r^α. Defaults to 5.

    Raises:
        VitnasError: ``alpha_min`` is above ``alpha_max``, or ``clip`` is not above 0.
    """

    def __init__(self, alpha_min: float = -1.0, alpha_max: float = 1.0, clip: float = 5.0) -> None:
        super().__init__()
        if alpha_min > alpha_max:
            raise VitnasError(f'`alpha_min` should be at most `alpha_max`, {alpha_max!r}, but got {alpha_min!r}')
        if not clip > 0:
            raise VitnasError(f'`clip` should be above 0, but got {clip!r}')
        self.alpha_min, self.alpha_max, self.clip = alpha_min, alpha_max, clip

    def forward(self, student: Tensor, teacher: Tensor) -> Tensor:
        """(B, classes), (B, classes) → a scalar, in float32 at least."""
        log_q = F.log_softmax(precise(student), -1)
        with torch.no_grad():
            log_p = F.log_softmax(precise(teacher), -1)
            low, low_weights = self._divergence(log_p, log_q, self.alpha_min)
            high, high_weights = self._divergence(log_p, log_q, self.alpha_max)
            weights = torch.where((low > high)[:, None], low_weights, high_weights)
        return -(weights * log_q).sum(-1).mean()

    def _divergence(self, log_p: Tensor, log_q: Tensor, alpha: float) -> tuple[Tensor, Tensor]:
        """The divergence of each sample, (B,), and the weights q ρ of its gradient, (B, classes)."""
        q, log_r = log_q.exp(), log_p - log_q
        if abs(alpha - 1) < _SAME:
            p = log_p.exp()
            return (p * log_r).sum(-1), p
        if abs(alpha) < _SAME:
            log_r = log_r.clamp(max=math.log(self.clip))
            return -(q * log_r).sum(-1), q * (log_r - 1)
        power, factor = (alpha * log_r).exp().clamp(max=self.clip), 1 / (alpha * (alpha - 1))
        return (q * (power - 1) * factor).sum(-1), q * (power / alpha + factor)


def precise(logits: Tensor) -> Tensor:
    """Logits in float32 at least, as sums of exponentials need them."""
    return logits if logits.dtype.itemsize >= 4 else logits.float()
