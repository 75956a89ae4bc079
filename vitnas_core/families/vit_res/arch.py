"""ViT-Res's choices and the cost of its networks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...costs.algebra import Count, add, attention, conv, linear, norm, per_block, stage_maps, staged, table
from ...errors import ArchError, SpaceError
from ...spaces.records import NetworkRecord, Record, StageRecord, whole
from ...spaces.schema import Schema
from ...spaces.space import SearchSpace

STEM = 24
"""Channels of the convolutions before the patches."""
PATCH = 7
"""Side of a patch on the stem's half-size map."""
STRIDE = 2 * PATCH
"""Stride of the first stage."""


@dataclass(frozen=True, eq=False)
class BlockChoices(Record):
    """Choices of a block."""

    num_heads: int = whole()
    hidden_dim: int = whole()


@dataclass(frozen=True, eq=False)
class StageChoices(StageRecord):
    """Choices of a stage; absent blocks are None."""

    embed_dim: int = whole()
    head_dim: int = whole('same')


class _Schema(Schema):
    """Schema in which widths do not shrink: the reduction between two stages fills up channels with zeros."""

    def check(self, network: Any) -> None:
        """Refuse a stage that is narrower than the one before it."""
        for s, (before, stage) in enumerate(zip(network.stages, network.stages[1:]), 1):
            if stage.embed_dim < before.embed_dim:
                raise ArchError(
                    f'stages[{s}].embed_dim is {stage.embed_dim}, less than the {before.embed_dim} before it; '
                    f'the reduction between them fills channels up with zeros'
                )

    def check_space(self, space: SearchSpace) -> None:
        """Refuse also a stage whose narrowest option is below the widest option of the stage before it."""
        super().check_space(space)
        widths = [stage.choices.values_of('embed_dim') for stage in space.stages]
        for s, (before, own) in enumerate(zip(widths, widths[1:]), 1):
            if own[0] < before[-1]:
                raise SpaceError(
                    f'stages[{s}].embed_dim of the ViTRes space should be at least {before[-1]}, the widest before it, '
                    f'but got {own[0]}'
                )


SCHEMA = _Schema('vit_res', 'ViTRes', stage=StageChoices, block=BlockChoices, absent='any')


def cost(
    network: NetworkRecord,
    size: tuple[int, int],
    num_classes: int,
    *,
    img_size: tuple[int, int],
    out_indices: Sequence[int],
) -> Count:
    """Count by the published convention: convolutions, linear layers and the two products of attention.

    One thing differs: the stem is counted at its own size; the published estimator always takes that of 224 × 224.
    """
    stages = network.stages
    maps, stored = (stage_maps(side, STRIDE, len(stages)) for side in (size, img_size))
    counted, before = [], 0
    for s, (stage, own, positions) in enumerate(zip(stages, maps, stored)):
        width, patches = stage.embed_dim, math.prod(own)
        if s:  # the convolution, and the linear layer of the class token
            entry = [norm(before), conv(before, width, 3, patches), linear(before, width)]
            entry.append(table(*positions, width))
        else:
            entry = [*_stem(width, patches), table(width), table(1 + math.prod(positions), width)]
        counted.append([*entry, *block_costs(stage.blocks, width, stage.head_dim, 1 + patches)])
        before = width
    return staged(counted, [stage.embed_dim for stage in stages], out_indices, num_classes)


def _stem(width: int, patches: int) -> list[Count]:
    """Count three convolutions with batch norms on the half-size map, and the patches."""
    pixels = patches * PATCH * PATCH
    convs = [conv(channels, STEM, 3, pixels, bias=False) for channels in (3, STEM, STEM)]
    return [*convs, *[norm(STEM)] * 3, conv(STEM, width, PATCH, patches)]


@per_block
def block_costs(block: BlockChoices, width: int, head_dim: int, tokens: int) -> Count:
    """Count a block."""
    inner = head_dim * block.num_heads
    return add(
        norm(width),
        linear(width, 3 * inner, tokens),
        attention(inner, tokens, tokens),
        linear(inner, width, tokens),
        norm(width),
        linear(width, block.hidden_dim, tokens),
        linear(block.hidden_dim, width, tokens),
    )
