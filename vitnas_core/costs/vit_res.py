"""What a ViT-Res network costs, in closed form, and how its architectures are read."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from ..errors import ArchError, VitnasError
from ..spaces import Arch, Choices
from .cost import Cost, as_size
from .reading import check_names, check_out_indices, stage_maps, whole

STEM = 24
"""Channels of the convolutions before the patches."""
PATCH = 7
"""Side of a patch on the stem's half-size map."""
STRIDE = 2 * PATCH
"""Image pixels a token of the first stage."""


class ViTResBlock(NamedTuple):
    """The choices of a block."""

    num_heads: int
    hidden_dim: int


class ViTResStage(NamedTuple):
    """The choices of a stage; absent blocks are None."""

    embed_dim: int
    head_dim: int
    blocks: tuple[ViTResBlock | None, ...]


def vit_res_cost(
    arch: Arch,
    input_size: int | tuple[int, int],
    num_classes: int,
    img_size: int | tuple[int, int],
    out_indices: Sequence[int],
) -> Cost:
    """Parameters and multiply-accumulates; arguments and convention as ``ViTRes.cost`` says."""
    stages = read_vit_res(arch)
    if num_classes < 0:
        raise VitnasError(f'`num_classes` should be at least 0, but got {num_classes!r}')
    check_out_indices(out_indices, len(stages))
    outputs = [index % len(stages) for index in out_indices]
    maps = stage_maps(as_size('input_size', input_size), STRIDE, len(stages))
    stored = stage_maps(as_size('img_size', img_size), STRIDE, len(stages))
    params, macs = _stem_cost(stages[0].embed_dim, maps[0], stored[0])
    previous = 0
    for s, (stage, size, table) in enumerate(zip(stages, maps, stored)):
        width, runs = stage.embed_dim, s <= max(outputs)
        if s:  # a norm, the convolution, the class token's layer, and positions
            params += 2 * previous + width * (9 * previous + 1) + width * (previous + 1) + width * table[0] * table[1]
            macs += runs * previous * width * (9 * size[0] * size[1] + 1)
        params += 2 * width * (s in outputs)
        for block in stage.blocks:
            more = (0, 0) if block is None else _block_cost(width, stage.head_dim, block, 1 + size[0] * size[1])
            params += more[0]
            macs += runs * more[1]
        previous = width
    width = stages[outputs[-1]].embed_dim
    return Cost(params + num_classes * (width + 1), macs + num_classes * width)


def _stem_cost(width: int, size: tuple[int, int], stored: tuple[int, int]) -> tuple[int, int]:
    """Three convolutions with batch norms, the patches, the class token and positions."""
    filters = 9 * STEM * (3 + STEM + STEM)
    patches = STEM * PATCH * PATCH * width
    params = filters + 3 * 2 * STEM + patches + width + width + width * (1 + stored[0] * stored[1])
    tokens = size[0] * size[1]
    return params, tokens * (PATCH * PATCH * filters + patches)


@lru_cache(maxsize=16384)
def _block_cost(width: int, head_dim: int, block: ViTResBlock, tokens: int) -> tuple[int, int]:
    inner, hidden = head_dim * block.num_heads, block.hidden_dim
    products = 4 * width * inner + 2 * width * hidden
    params = products + 3 * inner + width + hidden + width + 4 * width
    return params, tokens * products + 2 * tokens * tokens * inner


def read_vit_res(arch: Arch) -> tuple[ViTResStage, ...]:
    """embed_dim, head_dim and blocks of each stage.

    Raises:
        ArchError: The architecture is not ViT-Res's; with the path of what is wrong.
    """
    if arch.family != 'vit_res':
        raise ArchError(f'ViTRes runs architectures of vit_res, but got {arch.family}')
    if arch.choices:
        raise ArchError(f'{next(iter(arch.choices))} is unknown; ViTRes has no choice here')
    stages: list[ViTResStage] = []
    for s, stage in enumerate(arch.stages):
        path, blocks = f'stages[{s}]', []
        try:
            width, head_dim = _read_stage(stage.choices)
            if stages and width < stages[-1].embed_dim:
                raise ArchError(
                    f'.embed_dim is {width}, less than the {stages[-1].embed_dim} before it; '
                    f'the reduction between them fills channels up with zeros'
                )
            if not any(stage.blocks):
                raise ArchError('.blocks is empty; a stage of ViTRes has at least one block')
            for b, block in enumerate(stage.blocks):
                path = f'stages[{s}].blocks[{b}]'
                blocks.append(None if block is None else _read_block(block))
        except ArchError as err:
            raise ArchError(f'{path}{err}') from None
        stages.append(ViTResStage(width, head_dim, tuple(blocks)))
    return tuple(stages)


@lru_cache(maxsize=4096)
def _read_stage(choices: Choices) -> tuple[int, int]:
    check_names(choices, ('embed_dim', 'head_dim'), 'ViTRes')
    return whole(choices, 'embed_dim'), whole(choices, 'head_dim')


@lru_cache(maxsize=4096)
def _read_block(block: Choices) -> ViTResBlock:
    check_names(block, ('num_heads', 'hidden_dim'), 'ViTRes')
    return ViTResBlock(whole(block, 'num_heads'), whole(block, 'hidden_dim'))
