"""Gradient projection: remove the part of one gradient that opposes the other, then add them (NASViT, Sec. 3)."""

from __future__ import annotations

from typing import Any

import torch
from mmengine.optim import OptimWrapper
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_

from ..errors import VitnasError
from ..integration.steps import progress
from ..registry import CONFLICTS
from ..utils import checks

ASIDE = 'grad_aside'
"""Attribute of a parameter that holds its second gradient; between accumulating steps, that of the subnets."""

_KEEPS = ('subnets', 'supernet')


@CONFLICTS.register_module()
class GradientProjection:
    """Give one side priority where the gradients of supernet and subnets disagree (NASViT, Eq. 1).

    ∇ℓ_sup is the gradient of the largest architecture, ∇ℓ_sub the sum over the others of a step. If the subnets are
    kept:

        g = ∇ℓ_sub + proj(∇ℓ_sup),  proj(∇ℓ_sup) = ∇ℓ_sup − min(0, ⟨∇ℓ_sup, ∇ℓ_sub⟩) / ‖∇ℓ_sub‖² · ∇ℓ_sub

    so that what is added never opposes what is kept. Each parameter tensor is compared by itself, as in the published
    code. Both gradients accumulate over the micro-batches of an update, and processes exchange both before they are
    compared. ``clip_grad`` of the optimizer wrapper sees g.

    The published code is ``dict(cap=2.0, eps=1e-6, clip_subnets=1.0, start=101 / 400)``.

    Args:
        keep: ``'subnets'`` as above, or ``'supernet'``, the other way round (Prioritize (sup) in Table 7). Defaults to
            ``'subnets'``.
        cap: Largest multiple of the kept gradient that is added. Defaults to None: no limit.
        eps: Added to the squared norm in the denominator. Defaults to 0.
        clip_subnets: Largest norm of the subnets' gradient, clipped before the comparison. The supernet's gradient is
            not clipped. Defaults to None: no clipping.
        start: Fraction of the training in which gradients are only added. Defaults to 0.

    Raises:
        VitnasError: An argument is out of range. In the first step: torch's distributed wrapper has
            ``gradient_as_bucket_view``, which leaves no room for a second gradient.
    """

    def __init__(
        self,
        keep: str = 'subnets',
        cap: float | None = None,
        eps: float = 0.0,
        clip_subnets: float | None = None,
        start: float = 0.0,
    ) -> None:
        for name, number in (('cap', cap), ('clip_subnets', clip_subnets)):
            if number is not None:
                checks.positive(name, number)
        self.keep, self.cap, self.eps = checks.one_of('keep', keep, _KEEPS), cap, checks.least('eps', eps)
        self.clip_subnets, self.start = clip_subnets, checks.rate('start', start)

    def set_aside(self, model: nn.Module, optim_wrapper: OptimWrapper) -> None:
        """Put the supernet's gradients aside; the next backward passes add to the subnets'.

        Args:
            model: The model, perhaps wrapped for distributed training.
            optim_wrapper: Holds the trained parameters.
        """
        parameters = _trained(optim_wrapper)
        _swap(parameters)
        if isinstance(model, DistributedDataParallel):
            if model.gradient_as_bucket_view:
                raise VitnasError(
                    'vitnas.GradientProjection needs gradients of their own: leave `gradient_as_bucket_view` out of '
                    '`model_wrapper_cfg`'
                )
            if optim_wrapper.should_sync():
                _mark_used(parameters)

    def combine(self, optim_wrapper: OptimWrapper) -> None:
        """Combine both gradients if an update is due; otherwise both go on accumulating.

        Args:
            optim_wrapper: Holds the trained parameters.
        """
        parameters = _trained(optim_wrapper)
        if not optim_wrapper.should_update():
            _swap(parameters)
            return
        scaler = getattr(optim_wrapper, 'loss_scaler', None)
        scale = 1.0 if scaler is None else scaler.get_scale()
        if self.clip_subnets is not None:
            clip_grad_norm_(parameters, self.clip_subnets * scale)
        subnets = [p.grad for p in parameters]
        supernet = [getattr(p, ASIDE, None) for p in parameters]
        for parameter in parameters:
            setattr(parameter, ASIDE, None)
        kept, other = (subnets, supernet) if self.keep == 'subnets' else (supernet, subnets)
        if self._started(optim_wrapper):
            self._project(kept, other, self.eps * scale**2)
        for parameter, gradient in zip(parameters, _added(kept, other)):
            parameter.grad = gradient

    @torch.no_grad()
    def _project(self, kept: list[Tensor | None], other: list[Tensor | None], eps: float) -> None:
        """Add to each kept gradient, in place, the multiple of itself that cancels the opposing part of the other."""
        pairs = [(a, b) for a, b in zip(kept, other) if a is not None]
        if not pairs:
            return
        squares = torch.stack([_dot(a, a) for a, _ in pairs])
        zero = torch.zeros_like(squares[0])
        products = torch.stack([zero if b is None else _dot(a, b) for a, b in pairs])
        opposed = (products < 0) & (squares + eps > 0)
        factors = torch.where(opposed, -products / (squares + eps), 0.0).clamp(0, self.cap)
        torch._foreach_mul_([a for a, _ in pairs], list((1 + factors).unbind()))

    def _started(self, optim_wrapper: OptimWrapper) -> bool:
        if self.start == 0:
            return True
        done = progress(optim_wrapper)
        return done is not None and done >= self.start


def layers_of(model: nn.Module) -> dict[str, list[nn.Parameter]]:
    """Return the trainable parameters of each module that has its own, e.g. weight and bias, in network order."""
    layers: dict[str, list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            layers.setdefault(name.rpartition('.')[0], []).append(parameter)
    return layers


def _trained(optim_wrapper: OptimWrapper) -> list[nn.Parameter]:
    return [p for group in optim_wrapper.optimizer.param_groups for p in group['params'] if p.requires_grad]


def _swap(parameters: list[nn.Parameter]) -> None:
    """Swap the gradient of each parameter with the one aside, without a copy."""
    for parameter in parameters:
        aside, gradient = getattr(parameter, ASIDE, None), parameter.grad
        parameter.grad = aside
        setattr(parameter, ASIDE, gradient)


def _mark_used(parameters: list[nn.Parameter]) -> None:
    """Tell torch's distributed wrapper which parameters have accumulated gradients.

    The wrapper forgets this with every exchange, also that of the supernet's gradients. It would then leave parameters
    that only earlier micro-batches used out of the subnets' exchange. Adding zero to a gradient marks it as used.
    """
    used = [parameter for parameter in parameters if parameter.grad is not None]
    if used:
        torch.autograd.backward(used, [parameter.new_zeros(()).expand_as(parameter) for parameter in used])


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """Return ⟨a, b⟩ in float32 or better, without a copy of either."""
    if a.dtype.itemsize < 4:
        a, b = a.float(), b.float()
    return torch.dot(a.reshape(-1), b.reshape(-1))


@torch.no_grad()
def _added(a: list[Tensor | None], b: list[Tensor | None]) -> list[Any]:
    """Add each pair in place of the first; a missing gradient counts as zero."""
    both = [(x, y) for x, y in zip(a, b) if x is not None and y is not None]
    if both:
        torch._foreach_add_([x for x, _ in both], [y for _, y in both])
    return [y if x is None else x for x, y in zip(a, b)]
