"""``Axis``: channels of several layers, and the number of active ones."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .sharing import Channels


class Axis:
    """Common channels of several layers, such as the width of the tokens or the heads of a block.

    Layers are built between axes. Activate an architecture by setting the width of every axis; the layers follow.

    Args:
        most: Number of channels of the weights.
        channels: Channels that each width uses. Defaults to None: the first ones (prefix sharing).
        sortable: Whether the channels may be reordered by importance. Defaults to False.
    """

    entries = 1
    """Entries of a weight per channel."""

    def __init__(self, most: int, channels: Channels | None = None, sortable: bool = False) -> None:
        self.most, self.channels, self.sortable = most, channels, sortable
        self._width = most
        self._mask: Tensor | None = None

    @classmethod
    def of(cls, size: int | Axis) -> Axis:
        """Return an axis as it is; turn a number into an axis of that fixed width."""
        return size if isinstance(size, Axis) else cls(size)

    @property
    def root(self) -> Axis:
        """The axis whose width is set."""
        return self

    @property
    def width(self) -> int:
        """Number of active channels."""
        return self._width

    @property
    def mask(self) -> Tensor | None:
        """Mask of the channels of each sample, (B, most); None if all samples have the same."""
        return self._mask

    def set(self, width: int, mask: Tensor | None = None) -> None:
        """Activate a width.

        Args:
            width: Number of active channels.
            mask: Mask of the channels of each sample, (B, most). Defaults to None: all samples have the same.
        """
        self._width, self._mask = width, mask

    def times(self, entries: int) -> Axis:
        """The same channels with several entries each, e.g. the queries, keys and values of a head."""
        return _Multiple(self, entries)

    def active(self, width: int) -> Tensor:
        """Mask of the channels that a width uses, (most,)."""
        return torch.arange(self.most) < width if self.channels is None else self.channels.mask(width)

    def take(self, tensor: Tensor, width: int) -> Tensor:
        """Cut the last dimension of a full-width tensor to the channels of a width, as a view if possible."""
        return tensor[..., :width] if self.channels is None else self.channels.take(tensor, tensor.ndim - 1, width)

    def pad(self, tensor: Tensor, dim: int) -> Tensor:
        """Fill inactive channels with zeros, so that a full-width neck or head accepts the features.

        Args:
            tensor: The active channels.
            dim: Dimension of the channels.
        """
        missing = self.most - tensor.shape[dim]
        if missing == 0:
            return tensor
        if self.channels is not None:
            return self.channels.put(tensor, dim)
        shape = list(tensor.shape)
        shape[dim] = missing
        return torch.cat([tensor, tensor.new_zeros(shape)], dim)


class _Multiple(Axis):
    """An axis with several entries per channel of another axis, whose width and mask it follows."""

    def __init__(self, source: Axis, entries: int) -> None:
        channels = None if source.channels is None else source.channels.times(entries)
        super().__init__(source.most * entries, channels, source.sortable)
        self.source, self.entries = source, entries
        self._masked_by: Tensor | None = None

    @property
    def root(self) -> Axis:
        return self.source

    def times(self, entries: int) -> Axis:
        return _Multiple(self.source, self.entries * entries)

    @property
    def width(self) -> int:
        return self.source._width * self.entries

    @property
    def mask(self) -> Tensor | None:
        if self._masked_by is not self.source._mask:  # once per pass
            self._masked_by = self.source._mask
            self._mask = None if self._masked_by is None else self._masked_by.repeat_interleave(self.entries, 1)
        return self._mask


Axes = dict[str, tuple[Axis | None, ...]]
"""Axes of the leading dimensions of a module's own weights, by name; None for a dimension that is never cut."""


def table(*shape: int | Axis) -> nn.Parameter:
    """Make a parameter of zeros, e.g. a class token or positions; some of its dimensions may be axes."""
    return nn.Parameter(torch.zeros([size.most if isinstance(size, Axis) else size for size in shape]))
