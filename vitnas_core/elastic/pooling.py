"""Gradients of many slices of one weight, gathered in one place.

The gradient of a slice is, to autograd, a tensor of the whole weight's size that is zero elsewhere: with sixteen
architectures in a pass, sixteen of them are filled and added. Here each slice adds its part to one tensor.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .slicing import prefix


class GradientPool:
    """The slices of a weight in one forward pass.

    A handle without entries stands between the weight and its slices, so that autograd itself knows when all slices
    that take part in a backward pass have added theirs.

    Args:
        weight: The weight; it gets its gradient once a backward pass, as any other does.
    """

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight.detach()
        self.total: Tensor | None = None
        self._handle: Tensor = _Gather.apply(weight, self)  # type: ignore[no-untyped-call]

    def cut(self, *sizes: int) -> Tensor:
        """The first ``sizes`` entries of the leading axes, as a view."""
        return _Slice.apply(self._handle, self, sizes)  # type: ignore[no-untyped-call]


class _Gather(torch.autograd.Function):
    """A weight → a handle."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, pool: GradientPool) -> Tensor:
        ctx.pool = pool
        return weight.new_empty(0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, None]:
        total, ctx.pool.total = ctx.pool.total, None
        return total, None


class _Slice(torch.autograd.Function):
    """A handle → a slice of its weight."""

    @staticmethod
    def forward(ctx: Any, handle: Tensor, pool: GradientPool, sizes: tuple[int, ...]) -> Tensor:
        ctx.pool, ctx.sizes = pool, sizes
        return prefix(pool.weight, *sizes)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        pool = ctx.pool
        if pool.total is None:
            pool.total = torch.zeros_like(pool.weight)
        prefix(pool.total, *ctx.sizes).add_(grad)
        return grad.new_empty(0), None, None
