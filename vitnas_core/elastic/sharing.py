"""Patterns of weight sharing: the channels of the widest layer that each width uses (ViTAS, Sec. 4 and A.11).

*Ordinal*: the first channels. *Bilateral* (BCNet): the first channels and, in a second pass, the last ones. *Cyclic*: a
run on the ring of all channels. Runs are placed so that all channels are trained equally often (Eq. 12) and with nearly
equal influence (Eq. 13).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache

import numpy as np
import torch
from torch import Tensor

from ..errors import VitnasError

PREFIX = 'ordinal'
"""The pattern in which every width uses the first channels; checkpoints that name none have it."""

PATTERNS = (PREFIX, 'bilateral', 'cyclic')
"""Names of the patterns."""

MOST_GROUPS = 16
"""Largest number of groups for the channels of an axis."""


class Pattern:
    """Sharing pattern of the layers of a backbone.

    Args:
        name: ``'ordinal'``, ``'bilateral'`` or ``'cyclic'``. Defaults to ``'ordinal'``.

    Raises:
        VitnasError: ``name`` is unknown.
    """

    def __init__(self, name: str = PREFIX) -> None:
        if name not in PATTERNS:
            raise VitnasError(f'`sharing` should be one of {", ".join(PATTERNS)}, but got {name!r}')
        self.name = name
        self.side = 'left'
        """End from which a bilateral pattern takes channels."""

    @property
    def is_prefix(self) -> bool:
        """True if every width uses the first channels."""
        return self.name == PREFIX

    @property
    def two_sided(self) -> bool:
        """True if a width uses channels from both ends, each in a pass of its own."""
        return self.name == 'bilateral'

    @property
    def depends_on_widths(self) -> bool:
        """True if the channels of a width depend on the other widths."""
        return self.name == 'cyclic'

    @property
    def sides(self) -> tuple[str, ...]:
        """Ends from which a width takes its channels."""
        return ('left', 'right') if self.two_sided else ('left',)

    def each_side(self) -> Iterator[str]:
        """Take channels from each end in turn, then reset to the left end."""
        try:
            for side in self.sides:
                self.side = side
                yield side
        finally:
            self.side = 'left'

    def channels(self, most: int, widths: Iterable[int]) -> Channels | None:
        """Channels of an axis; None for prefix sharing.

        Args:
            most: Number of channels.
            widths: Widths that architectures use.
        """
        offered = sorted({*widths, most})
        return None if self.is_prefix or len(offered) == 1 else Channels(self, most, offered)


class Channels:
    """Channels of an axis under a sharing pattern.

    Args:
        pattern: The sharing pattern.
        most: Number of channels.
        widths: Widths that architectures use.
        entries: Entries of a weight per channel, stored side by side. Defaults to 1.
    """

    def __init__(self, pattern: Pattern, most: int, widths: Sequence[int], entries: int = 1) -> None:
        self.pattern, self.most, self.widths, self.entries = pattern, most, tuple(widths), entries

    def times(self, entries: int) -> Channels:
        """The same channels with several entries each, e.g. the queries, keys and values of a head."""
        return Channels(self.pattern, self.most, self.widths, entries)

    def start(self, width: int) -> int:
        """The first channel, on the ring, that a width uses."""
        if width == self.most:
            return 0
        if self.pattern.depends_on_widths:
            return ring_start(self.most, self.widths, width)
        return 0 if self.pattern.side == 'left' else self.most - width

    def parts(self, size: int) -> list[tuple[int, int]]:
        """Contiguous runs of ``size`` active entries, as (first entry, number of entries) in the order of the axis."""
        start, whole = self.start(size // self.entries) * self.entries, self.most * self.entries
        beyond = start + size - whole
        return [(start, size)] if beyond <= 0 else [(0, beyond), (start, size - beyond)]

    def take(self, tensor: Tensor, axis: int, size: int) -> Tensor:
        """Cut an axis to ``size`` active entries: a view, or two parts joined if the run wraps around."""
        if size == tensor.shape[axis]:
            return tensor
        runs = [tensor.narrow(axis, first, count) for first, count in self.parts(size)]
        return runs[0] if len(runs) == 1 else torch.cat(runs, axis)

    def mask(self, width: int) -> Tensor:
        """Mask of the channels that a width uses, (most,)."""
        return self.put(torch.ones(width, dtype=torch.bool), 0)

    def put(self, tensor: Tensor, axis: int) -> Tensor:
        """The inverse of :meth:`take`, with zeros elsewhere."""
        size, whole = tensor.shape[axis], self.most * self.entries
        if size == whole:
            return tensor
        shape = list(tensor.shape)
        shape[axis] = whole
        out, done = tensor.new_zeros(shape), 0
        for first, count in self.parts(size):
            out.narrow(axis, first, count).copy_(tensor.narrow(axis, done, count))
            done += count
        return out


def take(tensor: Tensor, *wanted: tuple[int, Channels | None]) -> Tensor:
    """The active part of a weight.

    Args:
        tensor: The weight.
        *wanted: (number of entries, channels) of each leading axis; channels are None for prefix sharing.
    """
    for axis, (size, channels) in enumerate(wanted):
        if size != tensor.shape[axis]:
            tensor = tensor.narrow(axis, 0, size) if channels is None else channels.take(tensor, axis, size)
    return tensor


@cache
def ring_start(most: int, widths: tuple[int, ...], width: int) -> int:
    """First channel of a width's cyclic run.

    Channels are divided into groups (ten in the paper). There are as few groups as possible, but every offered width
    is a whole number of them, up to rounding. If that takes more than :data:`MOST_GROUPS`, widths are rounded to whole
    groups.

    Args:
        most: Number of channels.
        widths: Widths that architectures use, including ``most``.
        width: The width; one that is not offered starts where the nearest offered one does.
    """
    groups = _num_groups(most, widths)
    sizes = tuple(sorted({_in_groups(own, most, groups) for own in widths}))
    wanted = _in_groups(width, most, groups)
    starts = dict(zip(sizes, cyclic_starts(groups, sizes)))
    nearest = min(sizes, key=lambda size: (abs(size - wanted), size))
    return round(starts[nearest] * most / groups) % most


def _num_groups(most: int, widths: tuple[int, ...]) -> int:
    for groups in range(2, min(MOST_GROUPS, most) + 1):
        if all(abs(own - _in_groups(own, most, groups) * most / groups) <= 0.5 for own in widths):
            return groups
    return min(MOST_GROUPS, most)


def _in_groups(width: int, most: int, groups: int) -> int:
    return max(1, round(width * groups / most))


@cache
def cyclic_starts(groups: int, sizes: tuple[int, ...] | None = None) -> tuple[int, ...]:
    """Starts of runs that share a ring most evenly (Eq. 12 and 13, and A.11's contiguity).

    A placement is valid if no group is in two runs more than another. A run of j groups adds 1 / j to the influence of
    each of its groups. Branch and bound finds a valid placement whose influences differ least.

    Args:
        groups: Number of groups on the ring.
        sizes: Numbers of groups of the runs, in ascending order. Defaults to None: 1 to ``groups``.

    Returns:
        The first group of each run; 0 for the smallest run and for the whole ring.

    Raises:
        VitnasError: There is no size, or one is not from 1 to ``groups``.
    """
    sizes = tuple(range(1, groups + 1)) if sizes is None else tuple(sorted(sizes))
    if not sizes or sizes[0] < 1 or sizes[-1] > groups:
        raise VitnasError(f'runs on a ring of {groups} groups should have 1 to {groups}, but got {list(sizes)}')
    runs = tuple(size for size in sizes if size < groups)
    return (*(_Placement(groups, runs).solve() if runs else ()), *(0,) * (len(sizes) - len(runs)))


class _Placement:
    """Branch and bound over the starts of runs, smallest run first."""

    def __init__(self, groups: int, runs: tuple[int, ...]) -> None:
        self.groups, self.runs = groups, runs
        self.fewest, self.most = sum(runs) // groups, -(-sum(runs) // groups)
        ring = np.arange(groups)
        self.covers = [((ring - ring[:, None]) % groups < run).astype(int) for run in runs]  # (start, group)
        self.best, self.starts = np.inf, [0] * len(runs)

    def solve(self) -> tuple[int, ...]:
        self._place(0, np.zeros(self.groups, int), np.zeros(self.groups), [])
        return tuple(self.starts)

    def _place(self, depth: int, times: np.ndarray, influence: np.ndarray, starts: list[int]) -> None:
        if depth == len(self.runs):
            self.best, self.starts = float((influence**2).sum()), starts
            return
        cover = self.covers[depth] if depth else self.covers[0][:1]  # all rotations are equivalent
        times, influence = times + cover, influence + cover / self.runs[depth]
        bounds = self._bounds(times, influence, self.runs[depth + 1 :])
        for start in np.argsort(bounds, kind='stable'):
            if bounds[start] < self.best - 1e-9:
                self._place(depth + 1, times[start], influence[start], [*starts, int(start)])

    def _bounds(self, times: np.ndarray, influence: np.ndarray, left: tuple[int, ...]) -> np.ndarray:
        """Lower bounds of the sum of squared influences, one per partial placement (row).

        A group that joins m of the remaining runs gains between the influence of the m longest and of the m shortest.
        The bound is the least sum of squares within these limits and with the right total. It is a Lagrangian bound,
        so the multiplier need not be exact.
        """
        shortest = np.cumsum([0.0, *(1 / run for run in left)])
        longest = np.cumsum([0.0, *(1 / run for run in reversed(left))])
        least, most = self.fewest - times, np.minimum(self.most - times, len(left))
        possible = (least <= len(left)).all(1) & (most >= 0).all(1)
        low = influence + longest[np.clip(least, 0, len(left))]
        high = influence + shortest[np.clip(most, 0, len(left))]
        total = float(len(self.runs))
        below, above = np.zeros((len(times), 1)), np.full((len(times), 1), high.max() + 1.0)
        for _ in range(16):
            level = (below + above) / 2
            short = np.clip(level, low, high).sum(1, keepdims=True) < total
            below, above = np.where(short, level, below), np.where(short, above, level)
        level = (below + above) / 2
        filled = np.clip(level, low, high)
        bounds = (filled**2).sum(1) - 2 * level[:, 0] * (filled.sum(1) - total)
        return np.where(possible, bounds, np.inf)


def shares(pattern: str, groups: int) -> np.ndarray:
    """β of the paper: how often dimension j (row, from 1 group to all) trains group i (column).

    Args:
        pattern: ``'ordinal'``, ``'bilateral'`` or ``'cyclic'``.
        groups: Number of channel groups.
    """
    rows = []
    for size, start in zip(range(1, groups + 1), cyclic_starts(groups)):
        ring = np.arange(groups)
        begins = {'ordinal': [0], 'bilateral': [0, groups - size], 'cyclic': [start]}[Pattern(pattern).name]
        rows.append(sum(((ring - begin) % groups < size).astype(int) for begin in begins))
    return np.array(rows)


def influence_gap(pattern: str, groups: int) -> float:
    """Objective of Eq. 13 over ordered pairs of groups, with ψ = 1 / j (Tab. 16, whose last row is per group)."""
    influence = (shares(pattern, groups) / np.arange(1, groups + 1)[:, None]).sum(0)
    return float(2 * groups * ((influence - influence.mean()) ** 2).sum())
