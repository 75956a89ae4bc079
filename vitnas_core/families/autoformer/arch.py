"""AutoFormer's choices and the cost of its networks."""

from __future__ import annotations

import math
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
    per_block,
    table,
    total,
)
from ...spaces.records import NetworkRecord, Record, StageRecord, ratio, units, whole
from ...spaces.schema import Schema

HEAD_DIM = 64
"""Size of every head. So q, k and v may be wider or narrower than the tokens."""

PEG_SIDE = 3
"""Side of the filters of conditional positions (CPVT's PEG)."""

POSITIONS = ('absolute', 'conditional', 'none')
"""Valid values of ``position``."""


@dataclass(frozen=True, eq=False)
class BlockChoices(Record):
    """Choices of a block."""

    num_heads: int = whole()
    mlp_ratio: float = ratio('embed_dim')


@dataclass(frozen=True, eq=False)
class StageChoices(StageRecord):
    """Choices of the only stage."""

    embed_dim: int = whole()


SCHEMA = Schema('autoformer', 'AutoFormer', stage=StageChoices, block=BlockChoices, num_stages=1)


def cost(
    network: NetworkRecord,
    size: tuple[int, int],
    num_classes: int,
    *,
    img_size: tuple[int, int],
    patch_size: int,
    position: str,
    reach: int,
    scaling: bool,
) -> Count:
    """Count by the paper's convention for T and B: convolutions, linear layers and the two products of attention.

    Conditional positions are included; the products of relative positions are not.
    """
    (stage,) = network.stages
    width, patches = stage.embed_dim, math.prod(grid(size, patch_size))
    tokens = 1 + patches
    before = [conv(3, width, patch_size, patches), table(width)]  # patches and the class token
    if position == 'absolute':
        before.append(table(1 + math.prod(grid(img_size, patch_size)), width))
    elif position == 'conditional':
        before.append(depthwise(width, PEG_SIDE, patches))
    blocks = block_costs(stage.blocks, width, tokens, reach, scaling)
    return total([[*before, *blocks, norm(width)]], 0, width, num_classes)


@per_block
def block_costs(block: BlockChoices, width: int, tokens: int, reach: int, scaling: bool) -> Count:
    """Count a block."""
    inner, hidden = HEAD_DIM * block.num_heads, units(width, block.mlp_ratio)
    return add(
        norm(width),
        linear(width, 3 * inner, tokens),
        attention(inner, tokens, tokens),
        table(4, 2 * reach + 2, HEAD_DIM) if reach else NOTHING,
        linear(inner, width, tokens),
        norm(width),
        linear(width, hidden, tokens),
        linear(hidden, width, tokens),
        table(2, width) if scaling else NOTHING,
    )
