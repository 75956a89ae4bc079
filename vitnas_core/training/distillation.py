"""In-place distillation: subnets learn from the largest architecture of a step, which may learn from a teacher."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..backbones import ElasticBackbone, unwrap
from ..errors import VitnasError
from ..integration.steps import label_loss
from ..registry import MODELS
from ..spaces import Arch
from ..utils import checks

_SAME = 1e-3
"""An α this close to 0 or 1 counts as 0 or 1, as in the published code."""


@MODELS.register_module()
class KLDivergence(nn.Module):
    """Σ p_teacher (log p_teacher − log p_student), the mean over samples; gradients equal the cross-entropy's.

    Args:
        temperature: Divides both logits; its square multiplies the loss. Defaults to 1.

    Raises:
        VitnasError: ``temperature`` is not above 0.
    """

    def __init__(self, temperature: float = 1.0) -> None:
        super().__init__()
        self.temperature = checks.positive('temperature', temperature)

    def forward(self, student: Tensor, teacher: Tensor) -> Tensor:
        """(B, classes), (B, classes) → a scalar, in float32 at least."""
        t = self.temperature
        log_q, log_p = F.log_softmax(precise(student) / t, -1), F.log_softmax(precise(teacher) / t, -1)
        return F.kl_div(log_q, log_p, reduction='batchmean', log_target=True) * t**2


@MODELS.register_module()
class AdaptiveAlphaDivergence(nn.Module):
    """The larger of two α-divergences between teacher p and student q, for each sample (AlphaNet, NASViT).

    With r = p / q, the divergence is 1 / (α (α − 1)) Σ q (r^α − 1). α = 1 is the Kullback-Leibler divergence of p from
    q, α = 0 that of q from p. A small α punishes a student that is sure where the teacher is not. A large α punishes a
    student that misses what the teacher sees. The loss is − Σ q ρ ln q with constant weights q ρ: it has the gradient
    of the divergence but not its value, and may be negative. r^α is at most ``clip`` unless α = 1, as in the published
    code.

    The published code divides probabilities, which gives NaN if the student's is too small for a float. Here ratios are
    differences of logarithms, which are finite for all finite logits.

    Args:
        alpha_min: The smaller α. Defaults to -1.
        alpha_max: The larger α, which also wins a tie. Defaults to 1.
        clip: Largest r^α. Defaults to 5.

    Raises:
        VitnasError: ``alpha_min`` is above ``alpha_max``, or ``clip`` is not above 0.
    """

    def __init__(self, alpha_min: float = -1.0, alpha_max: float = 1.0, clip: float = 5.0) -> None:
        super().__init__()
        if alpha_min > alpha_max:
            raise VitnasError(f'`alpha_min` should be at most `alpha_max`, {alpha_max!r}, but got {alpha_min!r}')
        self.alpha_min, self.alpha_max, self.clip = alpha_min, alpha_max, checks.positive('clip', clip)

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
        """Return the divergence of each sample (B,) and the weights q ρ of its gradient (B, classes)."""
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
    """Return logits in float32 or better, which sums of exponentials need."""
    return logits if logits.dtype.itemsize >= 4 else logits.float()


class DistilledLoss:
    """The losses of one step's architectures, the largest first.

    The largest learns from the teacher, or from the labels if there is none. The others learn from the largest by
    ``distill``, or from the labels if that is None.

    Args:
        backbone: The elastic backbone of the model.
        model: The model, perhaps wrapped for distributed training.
        data: A batch from the model's data preprocessor.
        distill: Loss between a subnet's logits and the largest's.
        teacher: Gives probabilities for images.
    """

    def __init__(
        self, backbone: ElasticBackbone, model: Any, data: Any, distill: nn.Module | None, teacher: nn.Module | None
    ) -> None:
        self.backbone, self.model, self.data = backbone, model, data
        self.distill, self.teacher = distill, teacher
        self.largest: Tensor | None = None
        """Logits of the first architecture, once it has run."""

    def __call__(self, arch: Arch) -> Tensor:
        """Run an architecture, which stays active, and return its loss.

        Raises:
            VitnasError: The model gives no logits, or the teacher has other classes.
        """
        first = self.largest is None
        target = self.teacher(self.data['inputs']) if first and self.teacher is not None else None
        self.backbone.set_arch(arch)
        loss, logits = self._loss_and_logits()
        if self.largest is None:
            self.largest = logits.detach()
            return loss if target is None else _soft_cross_entropy(logits, target)
        return loss if self.distill is None else self.distill(logits, self.largest)

    def _loss_and_logits(self) -> tuple[Tensor, Tensor]:
        """One pass of the active architecture: the loss against the labels, and the logits."""
        with _outputs_of_head(unwrap(self.model)) as seen:
            loss = label_loss(self.model, self.data)
        if len(seen) != 1 or not isinstance(seen[0], Tensor):
            raise _no_logits(self.model, self.distill)
        return loss, seen[0]


def check_logits(model: Any, distill: nn.Module | None) -> None:
    """Refuse a model that cannot give its logits.

    Raises:
        VitnasError: It has no head.
    """
    if not isinstance(getattr(model, 'head', None), nn.Module):
        raise _no_logits(model, distill)


def _no_logits(model: Any, distill: nn.Module | None) -> VitnasError:
    return VitnasError(
        f'`{"teacher" if distill is None else "distill"}` of vitnas.Sandwich needs a model whose head gives its logits '
        f'as one tensor, as classifiers do; {type(unwrap(model)).__name__} does not'
    )


def _soft_cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """− Σ target log p, the mean over samples."""
    if logits.shape != target.shape:
        raise VitnasError(
            f'the teacher of vitnas.Sandwich should know the classes of the model, but it has {target.shape[-1]} and '
            f'the head of the model has {logits.shape[-1]}'
        )
    return -(target * precise(logits).log_softmax(-1)).sum(-1).mean()


@contextlib.contextmanager
def _outputs_of_head(model: Any) -> Iterator[list[Any]]:
    """Collect what the head returns meanwhile, so that one pass gives the loss and the logits."""
    head: Any = getattr(model, 'head', None)
    seen: list[Any] = []
    if not isinstance(head, nn.Module):
        yield seen
        return
    handle = head.register_forward_hook(lambda module, args, output: seen.append(output))
    try:
        yield seen
    finally:
        handle.remove()
