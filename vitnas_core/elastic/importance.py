"""Order channels by importance, so that smaller architectures keep the ones that matter."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..errors import VitnasError
from .axis import Axis


class Reorder(NamedTuple):
    """A new order of a weight along a dimension.

    Args:
        weight: The weight.
        dim: The dimension.
        order: Index of the old entry for each new position.
    """

    weight: Tensor
    dim: int
    order: Tensor

    def apply(self, tensor: Tensor) -> None:
        """Reorder a tensor of the weight's shape in place: the weight itself, or its optimizer state."""
        tensor.copy_(tensor.index_select(self.dim, self.order))


class _Use(NamedTuple):
    """A weight with an axis along a dimension; linear layers decide the importance, other weights only follow."""

    weight: Tensor
    dim: int
    entries: int
    decides: bool


@torch.no_grad()
def importance_orders(network: nn.Module) -> list[Reorder]:
    """Find new orders of all sortable axes, most important channel first; full-width outputs stay the same.

    The importance of a channel is the sum of the magnitudes of all its weights in linear layers.

    Raises:
        VitnasError: Axes have a pattern in which smaller architectures do not use the first channels.
    """
    changes = []
    for axis, uses in _uses(network).items():
        device = uses[0].weight.device
        importance = torch.zeros(axis.most, device=device, dtype=uses[0].weight.dtype)
        for use in uses:
            if use.decides:
                importance += use.weight.abs().movedim(use.dim, 0).reshape(axis.most, -1).sum(1)
        order = importance.argsort(descending=True, stable=True)
        changes += [Reorder(use.weight, use.dim, _spread(order, use.entries)) for use in uses]
    return changes


def _uses(network: nn.Module) -> dict[Axis, list[_Use]]:
    """The weights along each sortable axis."""
    found: dict[Axis, list[_Use]] = {}
    for module in network.modules():
        for name, axes in getattr(module, 'axes', {}).items():
            for dim, axis in enumerate(axes):
                if axis is not None and axis.channels is not None:
                    raise VitnasError(
                        f'heads and hidden units cannot be sorted with sharing={axis.channels.pattern.name!r}: smaller '
                        f'architectures do not have the first ones'
                    )
                if axis is None or not axis.root.sortable or getattr(module, name, module) is None:
                    continue
                use = _Use(module.get_parameter(name), dim, axis.entries, isinstance(module, nn.Linear))
                found.setdefault(axis.root, []).append(use)
    return found


def _spread(order: Tensor, entries: int) -> Tensor:
    """Expand an order of channels to an order of their entries."""
    return (order[:, None] * entries + torch.arange(entries, device=order.device)).flatten()
