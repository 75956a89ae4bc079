"""Gradient projection: what of one gradient opposes the other is taken away before they are added (NASViT, Sec. 3)."""

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

ASIDE = 'grad_aside'
"""Attribute of a parameter that holds its second gradient: between two steps that accumulate, the subnets'."""

_KEEPS = ('subnets', 'supernet')


@CONFLICTS.register_module()
class GradientProjection:
    """Where supernet and subnets disagree, one of the two goes first (NASViT, Eq. 1).

    With ∇ℓ_sup of the largest architecture and ∇ℓ_sub summed over the others of a step, and the subnets kept:

        g = ∇ℓ_sub + proj(∇ℓ_sup),  proj(∇ℓ_sup) = ∇ℓ_sup − min(0, ⟨∇ℓ_sup, ∇ℓ_sub⟩) / ‖∇ℓ_sub‖² · ∇ℓ_sub

    so that what is added never opposes what is kept. Both accumulate over the micro-batches of an update and are
    exchanged between processes before they are compared. ``clip_grad`` of the optimizer wrapper sees g.

    The published code is ``dict(cap=2.0, eps=1e-6, clip_subnets=1.0, start=101 / 400)``.

    Args:
        keep: ``'subnets'`` as above; ``'supernet'``: the other way round (Prioritize (sup) of Table 7).
            Defaults to ``'subnets'``.
        cap: Largest multiple of the kept gradient that is added. Defaults to None: there is none.
        eps: Added to the squared norm that divides. Defaults to 0.
        clip_subnets: Largest norm of all subnets' gradients together, clipped before they are compared; the supernet's
            is left alone. Defaults to None: they are not clipped.
        start: For which part of the training gradients are only added. Defaults to 0.

    Raises:
        VitnasError: An argument is out of range; in the first step: torch's distributed wrapper has
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
        if keep not in _KEEPS:
            raise VitnasError(f'`keep` should be one of {", ".join(_KEEPS)}, but got {keep!r}')
        for name, number in (('cap', cap), ('clip_subnets', clip_subnets)):
            if number is not None and not number > 0:
                raise VitnasError(f'`{name}` should be above 0 or None, but got {number!r}')
        if not eps >= 0:
            raise VitnasError(f'`eps` should be at least 0, but got {eps!r}')
        if not 0 <= start <= 1:
            raise VitnasError(f'`start` should be from 0 to 1, but got {start!r}')
        self.keep, self.cap, self.eps = keep, cap, eps
        self.clip_subnets, self.start = clip_subnets, start

    def set_aside(self, model: nn.Module, optim_wrapper: OptimWrapper) -> None:
        """Put the supernet's gradients aside: what follows is added to the subnets'.

        Args:
            model: The model, perhaps wrapped for distributed training.
            optim_wrapper: Whose parameters are trained.
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
        """Make one gradient of both where an update is due; else leave both to accumulate further.

        Args:
            optim_wrapper: Whose parameters are trained.
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
        """Add to the kept gradients, in place, what takes from the others all that opposes them."""
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
    """The trainable parameters by the module that owns them, such as weight and bias, in the order of the network."""
    layers: dict[str, list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            layers.setdefault(name.rpartition('.')[0], []).append(parameter)
    return layers


def _trained(optim_wrapper: OptimWrapper) -> list[nn.Parameter]:
    return [p for group in optim_wrapper.optimizer.param_groups for p in group['params'] if p.requires_grad]


def _swap(parameters: list[nn.Parameter]) -> None:
    """Exchange the gradient of each parameter and the one aside; nothing is copied."""
    for parameter in parameters:
        aside, gradient = getattr(parameter, ASIDE, None), parameter.grad
        parameter.grad = aside
        setattr(parameter, ASIDE, gradient)


def _mark_used(parameters: list[nn.Parameter]) -> None:
    """Tell torch's distributed wrapper which parameters have accumulated gradients.

    It forgets that with every exchange, also that of the supernet's, and would leave out of the subnets' exchange
    what only earlier micro-batches used. Adding nothing to a gradient makes it notice.
    """
    used = [parameter for parameter in parameters if parameter.grad is not None]
    if used:
        torch.autograd.backward(used, [parameter.new_zeros(()).expand_as(parameter) for parameter in used])


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """⟨a, b⟩ in float32 at least, without a copy of either."""
    if a.dtype.itemsize < 4:
        a, b = a.float(), b.float()
    return torch.dot(a.reshape(-1), b.reshape(-1))


@torch.no_grad()
def _added(a: list[Tensor | None], b: list[Tensor | None]) -> list[Any]:
    """The sum of each pair, in place of the first; what is missing counts as zero."""
    both = [(x, y) for x, y in zip(a, b) if x is not None and y is not None]
    if both:
        torch._foreach_add_([x for x, _ in both], [y for _, y in both])
    return [y if x is None else x for x, y in zip(a, b)]
