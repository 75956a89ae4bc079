"""Terms of a cost: parameters and multiply-accumulates of layers.

Each family writes its cost in these terms, in the order of its forward pass. Norms, activations, pooling and sums count
no multiply-accumulates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, wraps
from typing import Any, NamedTuple

from ..utils.checks import stage_indices


class Count(NamedTuple):
    """Parameters and multiply-accumulates of a part of a network."""

    params: int
    macs: int = 0


remembered = lru_cache(maxsize=65536)
"""Remember the results of a function: architectures have few different layers."""

_MOST_CONTEXTS, _MOST_BLOCKS = 4096, 16384
"""Largest numbers of remembered stages and of remembered blocks of each."""

NOTHING = Count(0, 0)
"""The cost of an absent part."""


def add(*counts: Count) -> Count:
    """The sum of the parts."""
    params, macs = zip(*counts)
    return Count(sum(params), sum(macs))


@remembered
def linear(inputs: int, outputs: int, tokens: int = 1, bias: bool = True) -> Count:
    """A linear layer, applied to each token."""
    return Count(outputs * (inputs + bias), tokens * inputs * outputs)


@remembered
def conv(inputs: int, outputs: int, kernel: int, pixels: int, bias: bool = True) -> Count:
    """A convolution with square filters.

    Args:
        inputs: Input channels.
        outputs: Output channels.
        kernel: Side of the filters.
        pixels: Pixels of the output.
        bias: Whether there is a bias. Defaults to True.
    """
    weights = inputs * outputs * kernel * kernel
    return Count(weights + bias * outputs, pixels * weights)


@remembered
def depthwise(channels: int, kernel: int, pixels: int, bias: bool = True) -> Count:
    """A convolution of each channel by itself."""
    weights = channels * kernel * kernel
    return Count(weights + bias * channels, pixels * weights)


@remembered
def norm(channels: int) -> Count:
    """Gain and bias of a norm."""
    return Count(2 * channels)


@remembered
def table(*shape: int) -> Count:
    """Parameters that are looked up, added or multiplied elementwise: tokens, positions, scaling vectors."""
    return Count(math.prod(shape))


@remembered
def attention(inner: int, queries: int, keys: int, values: int | None = None) -> Count:
    """The two products of attention: queries with keys, weights with values.

    Args:
        inner: Width of the queries of all heads together.
        queries: Number of queries.
        keys: Number of keys per query.
        values: Width of the values of all heads together. Defaults to None: the width of the queries.
    """
    return Count(0, queries * keys * (inner + (inner if values is None else values)))


def per_block(function: Callable[..., Count]) -> Callable[..., list[Count]]:
    """Apply a cost of a block to all blocks of a stage, once per different block; absent blocks (None) cost nothing.

    ``function(block, *context)`` becomes ``function(blocks, *context)``, where the context is the same for all blocks
    of the stage, such as its width and its number of tokens.
    """
    contexts: dict[tuple, _Counts] = {}

    @wraps(function)
    def apply(blocks: Iterable[Any], *context: Any) -> list[Count]:
        known = contexts.get(context)
        if known is None:
            if len(contexts) >= _MOST_CONTEXTS:
                contexts.clear()
            known = contexts[context] = _Counts(lambda block: function(block, *context))
        return list(map(known.__getitem__, blocks))

    return apply


class _Counts(dict[Any, Count]):
    """Costs of blocks, each computed at its first use."""

    def __init__(self, count: Callable[[Any], Count]) -> None:
        super().__init__()
        self._count = count

    def __missing__(self, block: Any) -> Count:
        if len(self) >= _MOST_BLOCKS:
            self.clear()
        self[block] = made = NOTHING if block is None else self._count(block)
        return made


def total(stages: Iterable[Sequence[Count]], last: int, width: int, num_classes: int) -> Count:
    """The cost of a network with a linear head.

    Args:
        stages: The parts of each stage, at least one.
        last: Index of the last stage that runs; later ones count only their parameters.
        width: Input channels of the head.
        num_classes: Classes of the head; 0 for none.
    """
    params, macs = linear(width, num_classes)
    for s, parts in enumerate(stages):
        held, run = zip(*parts)
        params += sum(held)
        if s <= last:
            macs += sum(run)
    return Count(params, macs)


def staged(
    stages: Iterable[Sequence[Count]], widths: Sequence[int], out_indices: Sequence[int], num_classes: int
) -> Count:
    """The cost of stages, any of which may be an output behind a norm, and of a linear head on the last output.

    Args:
        stages: The parts of each stage.
        widths: Channels of each stage.
        out_indices: The stages whose features are returned.
        num_classes: Classes of the head; 0 for none.
    """
    outs = [index % len(widths) for index in stage_indices('out_indices', out_indices, len(widths))]
    counted = [[*parts, norm(widths[s])] if s in outs else parts for s, parts in enumerate(stages)]
    return total(counted, max(outs), widths[outs[-1]], num_classes)


# maps and windows


@remembered
def grid(size: tuple[int, int], patch_size: int) -> tuple[int, int]:
    """Rows and columns of patches; sides are padded to whole patches."""
    return -(-size[0] // patch_size), -(-size[1] // patch_size)


@remembered
def stage_maps(size: tuple[int, int], patch_size: int, stages: int) -> tuple[tuple[int, int], ...]:
    """Rows and columns of each stage's tokens; each stage halves the map of the one before, rounded up."""
    maps = [grid(size, patch_size)]
    for _ in range(stages - 1):
        maps.append(grid(maps[-1], 2))
    return tuple(maps)


@remembered
def padded_tokens(size: tuple[int, int], window: int) -> int:
    """Tokens of a map that is padded to whole windows."""
    rows, columns = grid(size, window)
    return rows * columns * window * window
