"""Window attention: the windows of a map, and the bias of relative positions in them (Swin, S3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from mmengine.logging import print_log
from torch import Tensor, nn

from .axis import Axes, Axis
from .sharing import take

_MASKED = -100.0
"""Added to the score of a query and a key that must not attend to each other, as in Swin and the published S3."""


@dataclass(frozen=True)
class Windows:
    """Square windows of a token map.

    If the window covers a side of the map, it shrinks to the shorter side and there is no shift. Maps are padded to
    whole windows, on the right and below. The shift rolls the padded map. Tokens that only the roll put side by side
    do not attend to each other, and neither do tokens and padding.

    Args:
        height: Rows of the map.
        width: Columns of the map.
        size: Side of a window.
        shift: Tokens by which the map is rolled, on both axes.
    """

    height: int
    width: int
    size: int
    shift: int

    @classmethod
    def of(cls, height: int, width: int, size: int, shifted: bool) -> Windows:
        """The windows of a block on a map: clamped to the map, and shifted by half a window if ``shifted``."""
        side = min(height, width)
        return cls(height, width, min(size, side), size // 2 if shifted and size < side else 0)

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of windows."""
        return -(-self.height // self.size), -(-self.width // self.size)

    def enter(self, x: Tensor) -> Tensor:
        """(B, H, W, C) → the padded and rolled map."""
        rows, columns = (count * self.size for count in self.grid)
        if (rows, columns) != (self.height, self.width):
            x = F.pad(x, (0, 0, 0, columns - self.width, 0, rows - self.height))
        return x.roll((-self.shift, -self.shift), (1, 2)) if self.shift else x

    def split(self, x: Tensor) -> Tensor:
        """The padded map (B, H', W', heads, parts, D) → (parts, B, windows, heads, tokens of a window, D)."""
        rows, columns = self.grid
        x = x.unflatten(2, (columns, self.size)).unflatten(1, (rows, self.size))
        return x.permute(6, 0, 1, 3, 5, 2, 4, 7).flatten(5, 6).flatten(2, 3)

    def join(self, x: Tensor) -> Tensor:
        """(B, windows, heads, tokens of a window, D) → the map (B, H, W, heads · D), rolled back and cropped."""
        (rows, columns), size = self.grid, self.size
        x = x.unflatten(3, (size, size)).unflatten(1, (rows, columns)).permute(0, 1, 4, 2, 5, 3, 6)
        x = x.flatten(5).flatten(3, 4).flatten(1, 2)
        if self.shift:
            x = x.roll((self.shift, self.shift), (1, 2))
        return x[:, : self.height, : self.width]

    @property
    def whole(self) -> bool:
        """True if all tokens of each window attend to each other: nothing is rolled, nothing padded."""
        rows, columns = self.grid
        return not self.shift and (rows * self.size, columns * self.size) == (self.height, self.width)

    def regions(self, device: torch.device) -> Tensor:
        """Region of each token, (windows, tokens); tokens of one region may attend to each other."""
        axes = []
        for length, count in zip((self.height, self.width), self.grid):
            position = torch.arange(count * self.size, device=device)
            # The padding, and the tokens that the roll carries to the other end.
            region = (position >= length) * 2 + (position < self.shift)
            axes.append(region.roll(-self.shift))
        regions = axes[0][:, None] * 4 + axes[1]
        cut = regions.unflatten(0, (-1, self.size)).unflatten(2, (-1, self.size))
        return cut.transpose(1, 2).flatten(2).flatten(0, 1)


class WindowTables:
    """Lookups for the blocks of one forward pass, made once per kind of window.

    They are not kept longer: a cache would also keep the fake tensors of an export.

    Args:
        device: Device of the pass.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._entries: dict[tuple[int, int, int], Tensor] = {}
        self._masks: dict[Windows, Tensor] = {}

    def entries(self, height: int, width: int, size: int) -> Tensor:
        """Index into a flat (2 · size − 1)² table for each query and key of a map, (tokens · tokens).

        Tokens that are further apart than the table reaches take its outermost entry.
        """
        key = height, width, size
        if key not in self._entries:
            rows, columns = (self._places(length, size) for length in (height, width))
            self._entries[key] = (rows[:, None, :, None] * (2 * size - 1) + columns[None, :, None, :]).flatten()
        return self._entries[key]

    def _places(self, length: int, size: int) -> Tensor:
        """Position in a table of the offset of each query and key on one axis, (length, length)."""
        position = torch.arange(length, device=self.device)
        offset = (position[:, None] - position[None, :]).clamp(1 - size, size - 1)  # query minus key
        return 2 * offset.abs() - (offset < 0).long()  # as zigzag() orders them

    def mask(self, windows: Windows, dtype: torch.dtype) -> Tensor | None:
        """Mask to add to the scores, (windows, 1, tokens, tokens); None if nothing is masked."""
        if windows.whole:
            return None
        if windows not in self._masks:
            regions = windows.regions(self.device)
            apart = regions[:, None, :, None] != regions[:, None, None, :]
            self._masks[windows] = apart.to(dtype) * _MASKED
        return self._masks[windows]


def zigzag(size: int) -> Tensor:
    """The offsets 0, −1, 1, −2, 2, … of a window as positions among −(size − 1), …, size − 1.

    Tables are stored in this order along both axes, so that a smaller window uses a prefix of the table.
    """
    order = torch.arange(2 * size - 1)
    return size - 1 + torch.where(order % 2 == 1, -(order + 1) // 2, order // 2)


class RelativeBias(nn.Module):
    """One bias per head for each offset of a query and a key in a window.

    All window sizes share one table, where smaller ones use the centre, or each size has its own table.

    Args:
        sizes: All window sizes.
        heads: Axis of the heads, or a fixed number.
        shared: One table for all sizes. Defaults to True.
    """

    def __init__(self, sizes: Sequence[int], heads: int | Axis, shared: bool = True) -> None:
        super().__init__()
        self.shared, self.heads = shared, Axis.of(heads)
        sides = {self._name(size): 2 * size - 1 for size in sorted(sizes)}
        self.tables = nn.ParameterDict(
            {name: nn.Parameter(torch.zeros(self.heads.most, side, side)) for name, side in sides.items()}
        )
        self.axes: Axes = {f'tables.{name}': (self.heads,) for name in self.tables}

    def _name(self, size: int) -> str:
        return 'shared' if self.shared else str(size)

    @property
    def offers(self) -> str:
        """The window sizes that the tables serve, as text."""
        return f'up to {_size_of(self.tables["shared"])}' if self.shared else ', '.join(self.tables)

    def serves(self, size: int) -> bool:
        """Return whether there is a table for a window size."""
        return size <= _size_of(self.tables['shared']) if self.shared else str(size) in self.tables

    def forward(self, size: int, windows: Windows, num_heads: int, common: WindowTables) -> Tensor:
        """The bias (heads, tokens, tokens) for a window size, which the map may have clamped to that of ``windows``."""
        side = 2 * windows.size - 1
        table = take(
            self.tables[self._name(size)], (num_heads, self.heads.channels), (side, None), (side, None)
        ).flatten(1)
        return table.index_select(1, common.entries(*(windows.size,) * 3)).unflatten(1, (windows.size**2, -1))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """Interpolate stored tables of other window sizes, as Swin does for larger images, and log it.

        This is for images of another size. To cut the centre out of a supernet's table, use ``extract``.
        """
        for name, table in self.tables.items():
            key = f'{prefix}tables.{name}'
            stored = state_dict.get(key)
            if stored is not None and stored.ndim == 3 and stored.shape[1:] != table.shape[1:]:
                state_dict[key] = resize_table(stored, _size_of(table))
                print_log(f'{key} is interpolated from windows of {_size_of(stored)} to {_size_of(table)}', 'current')
        super()._load_from_state_dict(state_dict, prefix, *args)


def resize_table(table: Tensor, size: int) -> Tensor:
    """Interpolate a table (heads, 2 · old − 1, 2 · old − 1) for windows of another size."""
    old, new = zigzag(_size_of(table)).argsort(), zigzag(size)
    grid = table[:, old][:, :, old][None].float()
    resized = F.interpolate(grid, (2 * size - 1, 2 * size - 1), mode='bicubic', align_corners=False)
    return resized[0, :, new][:, :, new].to(table.dtype)


def _size_of(table: Tensor) -> int:
    return (table.shape[-1] + 1) // 2
