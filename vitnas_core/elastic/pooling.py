"""Gather the gradients of many slices of one weight.

Autograd makes the gradient of a slice a tensor of the whole weight's size, zero elsewhere. With sixteen architectures
in a pass, it fills and adds sixteen of them. Here each slice adds its part to one tensor.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .slicing import prefix


class GradientPool:
    """The slices of a weight in one forward pass.

    An empty tensor, the handle, stands between the weight and its slices. Autograd therefore knows when all slices of
    a backward pass have added their gradients.

    Args:
        weight: The weight; it gets its gradient once per backward pass, as any other does.
    """

    def __init__(self, weight: Tensor) -> None:
        self._sum = _Sum(weight.detach())
        self._handle: Tensor = _Gather.apply(weight, self._sum)

    def cut(self, *sizes: int) -> Tensor:
        """The first ``sizes`` entries of the leading axes, as a view."""
        return _Slice.apply(self._handle, self._sum, sizes)


class _Sum:
    """A weight and the sum of its slices' gradients; a reference to the handle would be a cycle."""

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight
        self.total: Tensor | None = None

    def add(self, grad: Tensor, sizes: tuple[int, ...]) -> None:
        if self.total is None:
            self.total = torch.zeros_like(self.weight)
        prefix(self.total, *sizes).add_(grad)

    def take(self) -> Tensor | None:
        total, self.total = self.total, None
        return total


class _Gather(torch.autograd.Function):
    """A weight → a handle."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, gathered: _Sum) -> Tensor:
        ctx.gathered = gathered
        return weight.new_empty(0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, None]:
        return ctx.gathered.take(), None


class _Slice(torch.autograd.Function):
    """A handle → a slice of its weight."""

    @staticmethod
    def forward(ctx: Any, handle: Tensor, gathered: _Sum, sizes: tuple[int, ...]) -> Tensor:
        ctx.gathered, ctx.sizes = gathered, sizes
        return prefix(gathered.weight.detach(), *sizes)  # a new tensor: returning the same one would make a cycle

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        ctx.gathered.add(grad, ctx.sizes)
        return grad.new_empty(0), None, None
