"""``Axis``: channels that several layers have in common, and how many of them are active."""

from __future__ import annotations

import torch
from torch import Tensor

from .sharing import Channels


class Axis:
    """Channels that several layers have in common, such as the width of the tokens or the heads of a block.

    Layers are built between axes. An architecture is activated by setting the width of every axis; the layers follow.

    Args:
        most: How many channels the weights have.
        channels: Which channels a width uses. Defaults to None: the first ones.
        sortable: Whether the channels may be reordered by their importance. Defaults to False.
    """

    entries = 1
    """How many entries of a weight belong to one channel."""

    def __init__(self, most: int, channels: Channels | None = None, sortable: bool = False) -> None:
        self.most, self.channels, self.sortable = most, channels, sortable
        self._width = most
        self._mask: Tensor | None = None

    @classmethod
    def of(cls, size: int | Axis) -> Axis:
        """An axis as it is; a number becomes an axis that always has that width."""
        return size if isinstance(size, Axis) else cls(size)

    @property
    def root(self) -> Axis:
        """The axis whose width is set."""
        return self

    @property
    def width(self) -> int:
        """How many channels are active."""
        return self._width

    @property
    def mask(self) -> Tensor | None:
        """Which channels each sample has, (B, most); None where all samples have the same."""
        return self._mask

    def set(self, width: int, mask: Tensor | None = None) -> None:
        """Activate a width.

        Args:
            width: How many channels are active.
            mask: Which of them each sample has, (B, most). Defaults to None: all samples have the same.
        """
        self._width, self._mask = width, mask

    def times(self, entries: int) -> Axis:
        """The same channels where each has several entries, e.g. the queries, keys and values of a head."""
        return _Multiple(self, entries)

    def active(self, width: int) -> Tensor:
        """Which channels a width uses, (most,)."""
        return torch.arange(self.most) < width if self.channels is None else self.channels.mask(width)

    def take(self, tensor: Tensor, width: int) -> Tensor:
        """The first ``width`` active entries of the last dimension of a tensor of full width, as a view if possible."""
        return tensor[..., :width] if self.channels is None else self.channels.take(tensor, tensor.ndim - 1, width)

    def pad(self, tensor: Tensor, dim: int) -> Tensor:
        """Put zeros in place of inactive channels, so that a neck or head of full width takes the features.

        Args:
            tensor: The active channels.
            dim: Which dimension they lie on.
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
    """An axis with several entries per channel of another; its width and mask follow that one's."""

    def __init__(self, source: Axis, entries: int) -> None:
        channels = None if source.channels is None else source.channels.times(entries)
        super().__init__(source.most * entries, channels, source.sortable)
        self.source, self.entries = source, entries
        self._masked_by: Tensor | None = None

    @property
    def root(self) -> Axis:
        return self.source

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
"""The axes of the leading dimensions of a module's own weights, by name; None where a dimension is never cut."""
