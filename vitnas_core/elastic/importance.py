"""Which heads and hidden units matter most: the order in which smaller architectures should keep them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn


class Reorder(NamedTuple):
    """A new order of a weight along an axis.

    Args:
        weight: The weight.
        axis: The axis.
        order: Which old entry comes to each place.
    """

    weight: Tensor
    axis: int
    order: Tensor

    def apply(self, tensor: Tensor) -> None:
        """Reorder a tensor of the weight's shape in place: the weight itself, or what an optimizer keeps of it."""
        tensor.copy_(tensor.index_select(self.axis, self.order))


@torch.no_grad()
def order_heads(qkv: nn.Linear, proj: nn.Linear, head_dim: int, tables: Iterable[Tensor] = ()) -> list[Reorder]:
    """Heads by the magnitude of all their weights, largest first; what the layers compute stays.

    Args:
        qkv: Queries, keys and values; those of a head together.
        proj: What reads the heads.
        head_dim: Size of a head.
        tables: Other weights with an entry a head along their first axis. Defaults to ().
    """
    heads = proj.in_features // head_dim
    importance = qkv.weight.abs().view(heads, -1).sum(1)
    importance = importance + proj.weight.abs().view(len(proj.weight), heads, -1).sum((0, 2))
    if qkv.bias is not None:
        importance = importance + qkv.bias.abs().view(heads, -1).sum(1)
    order = importance.argsort(descending=True, stable=True)
    rows, columns = _spread(order, len(qkv.weight) // heads), _spread(order, head_dim)
    changes = [Reorder(qkv.weight, 0, rows), Reorder(proj.weight, 1, columns)]
    changes += [] if qkv.bias is None else [Reorder(qkv.bias, 0, rows)]
    return changes + [Reorder(table, 0, order) for table in tables]


@torch.no_grad()
def order_hidden(fc1: nn.Linear, fc2: nn.Linear) -> list[Reorder]:
    """Hidden units by the magnitude of all their weights, largest first; what the layers compute stays.

    Args:
        fc1: What makes them.
        fc2: What reads them.
    """
    importance = fc1.weight.abs().sum(1) + fc1.bias.abs() + fc2.weight.abs().sum(0)
    order = importance.argsort(descending=True, stable=True)
    return [Reorder(fc1.weight, 0, order), Reorder(fc1.bias, 0, order), Reorder(fc2.weight, 1, order)]


def _spread(order: Tensor, size: int) -> Tensor:
    """The order of single rows, of which each entry has ``size``."""
    return (order[:, None] * size + torch.arange(size, device=order.device)).flatten()
