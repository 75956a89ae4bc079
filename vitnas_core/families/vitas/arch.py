"""Choices of ViTAS's two spaces and the cost of their networks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ...costs.algebra import (
    NOTHING,
    Count,
    add,
    attention,
    conv,
    depthwise,
    grid,
    linear,
    norm,
    padded_tokens,
    per_block,
    remembered,
    stage_maps,
    staged,
    table,
    total,
)
from ...errors import ArchError, VitnasError
from ...spaces.records import NetworkRecord, Record, StageRecord, whole, word
from ...spaces.schema import Schema
from ...utils import checks

PEG_SIDE = 3
"""Side of the convolution that encodes positions."""


@dataclass(frozen=True, eq=False)
class BlockChoices(Record):
    """Choices of a block: heads, joint width of queries, keys and values, hidden units of the MLP."""

    num_heads: int = whole('free')
    qkv_dim: int = whole()
    hidden_dim: int = whole()

    def check(self) -> None:
        """Refuse a width that is no multiple of the number of heads."""
        if self.qkv_dim % (3 * self.num_heads):
            raise ArchError(
                f'.qkv_dim is {self.qkv_dim}, which {self.num_heads} heads do not divide into queries, keys and values'
            )

    @property
    def inner(self) -> int:
        """Width of the queries; keys and values have the same."""
        return self.qkv_dim // 3


@dataclass(frozen=True, eq=False)
class StageChoices(StageRecord):
    """Choices of a stage; absent blocks are None."""

    embed_dim: int = whole()


@dataclass(frozen=True, eq=False)
class DeiTChoices(NetworkRecord):
    """Choices of a network of the DeiT space; each patch size has its own weights."""

    patch_size: int = whole('own', ascending=False)


@dataclass(frozen=True, eq=False)
class TwinsBlockChoices(BlockChoices):
    """Choices of a block of the Twins space, which attends to its window or to all cells of the map."""

    op: str = word('local', 'global')


DEIT = Schema(
    'vitas_deit', 'ViTASDeiT', DeiTChoices, StageChoices, BlockChoices, num_stages=1, absent='any', empty=True
)
TWINS = Schema('vitas_twins', 'ViTASTwins', stage=StageChoices, block=TwinsBlockChoices, absent='any', empty=True)


def deit_cost(network: DeiTChoices, size: tuple[int, int], num_classes: int, *, img_size: tuple[int, int]) -> Count:
    """Count convolutions, linear layers and the two products of attention, over all tokens.

    The paper's figures leave out the class token and let the classifier read every other token.
    """
    (stage,) = network.stages
    width, patch_size = stage.embed_dim, network.patch_size
    patches, stored = (math.prod(grid(side, patch_size)) for side in (size, img_size))
    before = [conv(3, width, patch_size, patches), table(width), table(1 + stored, width)]
    blocks = deit_block_costs(stage.blocks, width, 1 + patches)
    return total([[*before, *blocks, norm(width)]], 0, width, num_classes)


@per_block
def deit_block_costs(block: BlockChoices, width: int, tokens: int) -> Count:
    """Count a block in which every token attends to every other."""
    return add(_attention(block.inner, width, tokens), _mlp(block.hidden_dim, width, tokens))


@remembered
def _attention(inner: int, width: int, tokens: int) -> Count:
    return add(
        norm(width),
        linear(width, 3 * inner, tokens),
        attention(inner, tokens, tokens),
        linear(inner, width, tokens),
    )


@remembered
def _mlp(hidden: int, width: int, tokens: int) -> Count:
    return add(norm(width), linear(width, hidden, tokens), linear(hidden, width, tokens))


def check_ratios(name: str, ratios: Sequence[int], stages: int) -> tuple[int, ...]:
    """Check the sides of the cells that global blocks attend to.

    Raises:
        VitnasError: They are not whole numbers, or too few.
    """
    if not isinstance(ratios, (list, tuple)) or len(ratios) < stages:
        raise VitnasError(f'`{name}` should have a whole number for each of {stages} stages, but got {ratios!r}')
    return tuple(checks.whole(name, ratio) for ratio in ratios)


def twins_cost(
    network: NetworkRecord,
    size: tuple[int, int],
    num_classes: int,
    *,
    patch_size: int,
    window_size: int,
    sr_ratios: Sequence[int],
    out_indices: Sequence[int],
) -> Count:
    """Count convolutions, linear layers and the two products of attention.

    Tokens that fill up windows count if they are computed.
    """
    stages = network.stages
    ratios = check_ratios('sr_ratios', sr_ratios, len(stages))
    counted, channels, side = [], 3, patch_size
    for s, (stage, own) in enumerate(zip(stages, stage_maps(size, patch_size, len(stages)))):
        width, tokens = stage.embed_dim, math.prod(own)
        entry = [conv(channels, width, side, tokens), norm(width), depthwise(width, PEG_SIDE, tokens)]
        counted.append([*entry, *twins_block_costs(stage.blocks, width, own, window_size, ratios[s])])
        channels, side = width, 2
    return staged(counted, [stage.embed_dim for stage in stages], out_indices, num_classes)


@per_block
def twins_block_costs(
    block: TwinsBlockChoices, width: int, size: tuple[int, int], window_size: int, ratio: int
) -> Count:
    """Count a block that attends in windows, or to one cell per ``ratio`` × ``ratio`` tokens."""
    attended = _twins_attention(block.op, block.inner, width, size, window_size, ratio)
    return add(attended, _mlp(block.hidden_dim, width, math.prod(size)))


@remembered
def _twins_attention(op: str, inner: int, width: int, size: tuple[int, int], window_size: int, ratio: int) -> Count:
    tokens = math.prod(size)
    if op == 'local':
        side = window_of(size, window_size)
        padded = padded_tokens(size, side)
        qkv = add(linear(width, 3 * inner, padded), attention(inner, padded, side * side))
    else:
        cells, reduction = tokens, NOTHING
        if ratio > 1:
            cells = max(1, size[0] // ratio) * max(1, size[1] // ratio)
            reduction = add(conv(width, width, ratio, cells), norm(width))
        q, kv = linear(width, inner, tokens), linear(width, 2 * inner, cells)
        qkv = add(reduction, q, kv, attention(inner, tokens, cells))
    return add(norm(width), qkv, linear(inner, width, tokens))


def window_of(size: tuple[int, int], window_size: int) -> int:
    """Return the side of windows on a map; a window that holds the whole map is as large as the map."""
    return min(window_size, max(size))
