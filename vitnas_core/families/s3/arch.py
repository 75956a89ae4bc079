"""S3's choices and the cost of its networks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...costs.algebra import (
    NOTHING,
    Count,
    add,
    attention,
    conv,
    linear,
    norm,
    padded_tokens,
    per_block,
    stage_maps,
    staged,
    table,
)
from ...spaces.records import NetworkRecord, Record, StageRecord, ratio, units, whole
from ...spaces.schema import Schema

HEAD_DIM = 32
"""Size of every head. So q, k and v may be wider or narrower than the tokens."""


@dataclass(frozen=True, eq=False)
class BlockChoices(Record):
    """Choices of a block; its windows need bias tables, which depend on the settings."""

    num_heads: int = whole()
    mlp_ratio: float = ratio('embed_dim')
    window_size: int = whole('free')


@dataclass(frozen=True, eq=False)
class StageChoices(StageRecord):
    """Choices of a stage."""

    embed_dim: int = whole()


SCHEMA = Schema('s3', 'S3', stage=StageChoices, block=BlockChoices)


def cost(
    network: NetworkRecord,
    size: tuple[int, int],
    num_classes: int,
    *,
    img_size: tuple[int, int],
    patch_size: int,
    out_indices: Sequence[int],
    scaling: bool,
) -> Count:
    """Count by the convention that fits the paper's figures best: convolutions, linear layers, products of attention.

    Tokens that pad a map to whole windows count if they are computed.
    """
    stages = network.stages
    maps, stored = (stage_maps(side, patch_size, len(stages)) for side in (size, img_size))
    counted, before = [], 0
    for s, (stage, (rows, columns)) in enumerate(zip(stages, maps)):
        width, tokens, side = stage.embed_dim, rows * columns, min(stored[s])
        if s:  # a norm over the four tokens of a cell, and the merging
            entry = [norm(4 * before), linear(4 * before, width, tokens, bias=False)]
        else:
            entry = [conv(3, width, patch_size, tokens), norm(width)]
        blocks = block_costs(stage.blocks, width, (rows, columns), side, scaling)
        counted.append([*entry, *blocks])
        before = width
    return staged(counted, [stage.embed_dim for stage in stages], out_indices, num_classes)


@per_block
def block_costs(block: BlockChoices, width: int, size: tuple[int, int], side: int, scaling: bool) -> Count:
    """Count a block on a map; ``side`` is the side of the map for which its table is stored."""
    stored = min(block.window_size, side)
    window, tokens = min(stored, *size), size[0] * size[1]
    padded = padded_tokens(size, window)
    inner, hidden = HEAD_DIM * block.num_heads, units(width, block.mlp_ratio)
    return add(
        norm(width),
        linear(width, 3 * inner, padded),
        attention(inner, padded, window * window),
        table(2 * stored - 1, 2 * stored - 1, block.num_heads),
        linear(inner, width, tokens),
        norm(width),
        linear(width, hidden, tokens),
        linear(hidden, width, tokens),
        table(2, width) if scaling else NOTHING,
    )
