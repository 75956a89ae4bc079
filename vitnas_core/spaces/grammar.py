"""Grammar of a search space: the choices of a network, its stages and their blocks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from operator import mul
from typing import Any, TypeVar

from ..errors import SpaceError
from .arch import Value

_T = TypeVar('_T')

Options = tuple[Value, ...]
"""The values that one choice offers, from the smallest network to the largest."""


@dataclass(frozen=True)
class ChoiceSpace:
    """Independent choices with their options, e.g. those of one block.

    Args:
        options: Name → options.
    """

    options: tuple[tuple[str, Options], ...] = ()

    @classmethod
    def read(cls, data: Mapping[str, Any], path: str) -> ChoiceSpace:
        """Read ``{"num_heads": [3, 4]}``; a single value counts as a list of one.

        Raises:
            SpaceError: Options are empty, repeated, of mixed kinds or out of order.
        """
        return cls(
            tuple((name, read_options(value, f'{path}.{name}' if path else name)) for name, value in data.items())
        )

    def to_dict(self) -> dict[str, list[Value]]:
        """The JSON form."""
        return {name: list(options) for name, options in self.options}

    def values_of(self, name: str) -> list[Any]:
        """The options of a choice."""
        return list(dict(self.options)[name])

    def size(self) -> int:
        """Number of settings."""
        return math.prod(len(options) for _, options in self.options)

    def upper(self, opened: float) -> ChoiceSpace:
        """Only the largest options of each choice; see :meth:`SearchSpace.upper`."""
        return ChoiceSpace(tuple((name, upper_options(options, opened)) for name, options in self.options))


@dataclass(frozen=True)
class StageSpace:
    """A stage: its own choices, its blocks' choices, and which blocks may be absent.

    Args:
        choices: Choices of the whole stage.
        blocks: The choices of each block that can exist; None for a place that is always empty.
        depths: Possible numbers of blocks; a smaller depth drops the last ones.
        optional: Positions of single blocks that may be absent. A stage has ``depths`` or
            ``optional``, not both.
    """

    choices: ChoiceSpace
    blocks: tuple[ChoiceSpace | None, ...]
    depths: tuple[int, ...]
    optional: tuple[int, ...] = ()

    @classmethod
    def read(cls, data: Mapping[str, Any], path: str) -> StageSpace:
        """Read the JSON form.

        ``block`` (one object for all blocks) or ``blocks`` (a list, one object per block) gives the choices of
        the blocks. ``depth`` is their number or a list of numbers, ``optional`` a list of positions.

        Raises:
            SpaceError: Something is malformed; the message names its path.
        """
        if not isinstance(data, Mapping):
            raise SpaceError(f'{path} should be an object, but got {data!r}')
        own = {k: v for k, v in data.items() if k not in ('block', 'blocks', 'depth', 'optional')}
        if 'block' in data and 'blocks' in data:
            raise SpaceError(f'{path} should have `block` or `blocks`, not both')
        depths = _read_depths(data, path)
        if 'blocks' in data:
            if not isinstance(data['blocks'], Sequence) or isinstance(data['blocks'], str):
                raise SpaceError(f'{path}.blocks should be a list, but got {data["blocks"]!r}')
            blocks = tuple(_read_block(b, f'{path}.blocks[{i}]') for i, b in enumerate(data['blocks']))
            depths = depths or (len(blocks),)
        else:
            depths = depths or (0,)
            blocks = (_read_block(data.get('block', {}), f'{path}.block'),) * depths[-1]
        if depths[-1] != len(blocks):
            raise SpaceError(f'{path}.depth goes up to {depths[-1]}, but there are {len(blocks)} blocks')
        if len(depths) > 1 and None in blocks:
            raise SpaceError(f'{path} should have several depths or empty places in `blocks`, not both')
        optional = _read_optional(data, path, blocks)
        if optional and len(depths) > 1:
            raise SpaceError(f'{path} should have several depths or `optional` blocks, not both')
        return cls(ChoiceSpace.read(own, path), blocks, depths, optional)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form; equal blocks are written once."""
        data: dict[str, Any] = {**self.choices.to_dict(), 'depth': list(self.depths)}
        blocks = [None if block is None else block.to_dict() for block in self.blocks]
        if len(set(self.blocks)) == 1 and blocks[0] is not None:
            data['block'] = blocks[0]
        elif blocks:
            data['blocks'] = blocks
        if self.optional:
            data['optional'] = list(self.optional)
        return data

    def block_size(self, position: int) -> int:
        """Number of settings of the block at a position, including its absence if it is optional."""
        block = self.blocks[position]
        return (1 if block is None else block.size()) + (position in self.optional)

    @cached_property
    def _sizes(self) -> tuple[int, ...]:
        return tuple(accumulate((self.block_size(i) for i in range(len(self.blocks))), mul, initial=1))

    def size_at_depth(self, depth: int) -> int:
        """Number of settings of the first ``depth`` blocks together."""
        return self._sizes[depth]

    def size(self) -> int:
        """Exact number of different stages."""
        return self.choices.size() * sum(self.size_at_depth(depth) for depth in self.depths)

    def upper(self, opened: float) -> StageSpace:
        """Only the largest options of each choice; see :meth:`SearchSpace.upper`."""
        blocks = tuple(None if block is None else block.upper(opened) for block in self.blocks)
        # The published code lists a block that may be absent as absent, absent, present, present.
        optional = self.optional if 0 in upper_options((0, 0, 1, 1), opened) else ()
        return StageSpace(self.choices.upper(opened), blocks, upper_options(self.depths, opened), optional)


def upper_options(options: tuple[_T, ...], opened: float) -> tuple[_T, ...]:
    """The last 1 + floor(opened · (n − 1)) of n options."""
    return options[-1 - math.floor(opened * (len(options) - 1) + 1e-9) :]  # 1e-9: 0.29 * 100 is a float below 29


def read_options(data: Any, path: str) -> Options:
    """Read the options of one choice.

    Raises:
        SpaceError: Options are empty, repeated, of mixed kinds or out of order.
    """
    options = tuple(data) if isinstance(data, Sequence) and not isinstance(data, str) else (data,)
    if not options:
        raise SpaceError(f'{path} offers no option')
    if any(type(v) not in (int, float, str) or (type(v) is float and not math.isfinite(v)) for v in options):
        raise SpaceError(f'{path} should offer numbers or words, but got {data!r}')
    if len(set(options)) < len(options):
        raise SpaceError(f'{path} offers an option twice: {data!r}')
    numbers = [v for v in options if not isinstance(v, str)]
    if numbers and len(numbers) < len(options):
        raise SpaceError(f'{path} should offer numbers or words, not both: {data!r}')
    if numbers not in (sorted(numbers), sorted(numbers, reverse=True)):
        raise SpaceError(f'{path} should list its options in order, smallest network first, but got {data!r}')
    return options


def _read_depths(data: Mapping[str, Any], path: str) -> tuple[int, ...]:
    if 'depth' not in data:
        return ()
    options = read_options(data['depth'], f'{path}.depth')
    depths = tuple(d for d in options if type(d) is int and d >= 0)
    if len(depths) < len(options) or list(depths) != sorted(depths):
        raise SpaceError(f'{path}.depth should list whole numbers, smallest first, but got {data["depth"]!r}')
    return depths


def _read_block(data: Any, path: str) -> ChoiceSpace | None:
    if data is None:
        return None
    if not isinstance(data, Mapping):
        raise SpaceError(f'{path} should be an object, but got {data!r}')
    return ChoiceSpace.read(data, path)


def _read_optional(data: Mapping[str, Any], path: str, blocks: tuple[ChoiceSpace | None, ...]) -> tuple[int, ...]:
    optional = data.get('optional', [])
    valid = [i for i, block in enumerate(blocks) if block is not None]
    if not isinstance(optional, (list, tuple)) or any(type(i) is not int or i not in valid for i in optional):
        raise SpaceError(f'{path}.optional should list positions of blocks, {valid}, but got {optional!r}')
    return tuple(sorted(set(optional)))
