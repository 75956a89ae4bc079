"""What a network of ViTAS's Twins space costs, in closed form, and how its architectures are read."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from ..errors import ArchError, VitnasError
from ..spaces import Arch, Choices
from .cost import Cost, as_size
from .reading import check_names, check_out_indices, read_width, stage_maps
from .vitas_deit import BLOCK_CHOICES, ViTASBlock, read_heads

OPS = ('local', 'global')
"""What a block attends to: its window, or all cells of the map."""
PEG_SIDE = 3
"""Side of the convolution that encodes positions."""


class TwinsBlock(NamedTuple):
    """What a block attends to, and its other choices."""

    op: str
    sizes: ViTASBlock


class TwinsStage(NamedTuple):
    """The choices of a stage; absent blocks are None."""

    embed_dim: int
    blocks: tuple[TwinsBlock | None, ...]


def vitas_twins_cost(
    arch: Arch,
    input_size: int | tuple[int, int],
    num_classes: int,
    patch_size: int,
    window_size: int,
    sr_ratios: Sequence[int],
    out_indices: Sequence[int],
) -> Cost:
    """Parameters and multiply-accumulates; arguments and convention as ``ViTASTwins.cost`` says."""
    stages = read_vitas_twins(arch)
    if num_classes < 0:
        raise VitnasError(f'`num_classes` should be at least 0, but got {num_classes!r}')
    check_out_indices(out_indices, len(stages))
    outputs = [index % len(stages) for index in out_indices]
    maps = stage_maps(as_size('input_size', input_size), patch_size, len(stages))
    params = macs = 0
    channels, side = 3, patch_size
    for s, (stage, size, ratio) in enumerate(zip(stages, maps, sr_ratios)):
        width, runs, tokens = stage.embed_dim, s <= max(outputs), size[0] * size[1]
        patch = channels * side * side
        params += width * (patch + 1) + 2 * width + width * (PEG_SIDE**2 + 1) + 2 * width * (s in outputs)
        macs += runs * tokens * width * (patch + PEG_SIDE**2)
        for block in stage.blocks:
            more = (0, 0) if block is None else _block_cost(width, block, size, window_size, ratio)
            params += more[0]
            macs += runs * more[1]
        channels, side = width, 2
    width = stages[outputs[-1]].embed_dim
    return Cost(params + num_classes * (width + 1), macs + num_classes * width)


@lru_cache(maxsize=65536)
def _block_cost(width: int, block: TwinsBlock, size: tuple[int, int], window_size: int, ratio: int) -> tuple[int, int]:
    sizes, tokens = block.sizes, size[0] * size[1]
    inner, hidden = sizes.inner, sizes.hidden_dim
    products = 4 * width * inner + 2 * width * hidden
    params = products + sizes.qkv_dim + width + hidden + width + 4 * width
    macs = tokens * (width * inner + 2 * width * hidden)  # what heads gather, and the MLP
    if block.op == 'local':
        side = window_of(size, window_size)
        padded = -(-size[0] // side) * -(-size[1] // side) * side * side
        return params, macs + padded * (3 * width * inner + 2 * side * side * inner)
    cells = tokens
    if ratio > 1:  # a convolution and a norm
        cells = max(1, size[0] // ratio) * max(1, size[1] // ratio)
        reduction = width * width * ratio * ratio
        params += reduction + 3 * width
        macs += cells * reduction
    return params, macs + tokens * width * inner + cells * 2 * width * inner + 2 * tokens * cells * inner


def window_of(size: tuple[int, int], window_size: int) -> int:
    """The side of windows on a map: that of the map where one window holds it all."""
    return min(window_size, max(size))


def read_vitas_twins(arch: Arch) -> tuple[TwinsStage, ...]:
    """Width and blocks of each stage.

    Raises:
        ArchError: The architecture is not of ViTAS's Twins space; with the path of what is wrong.
    """
    if arch.family != 'vitas_twins':
        raise ArchError(f'ViTASTwins runs architectures of vitas_twins, but got {arch.family}')
    if arch.choices:
        raise ArchError(f'{next(iter(arch.choices))} is unknown; ViTASTwins has no choice here')
    stages = []
    for s, stage in enumerate(arch.stages):
        path, blocks = f'stages[{s}]', []
        try:
            width = read_width(stage.choices, 'ViTASTwins')
            for b, block in enumerate(stage.blocks):
                path = f'stages[{s}].blocks[{b}]'
                blocks.append(None if block is None else _read_block(block))
        except ArchError as err:
            raise ArchError(f'{path}{err}') from None
        stages.append(TwinsStage(width, tuple(blocks)))
    return tuple(stages)


@lru_cache(maxsize=65536)
def _read_block(block: Choices) -> TwinsBlock:
    check_names(block, ('op', *BLOCK_CHOICES), 'ViTASTwins')
    op = block['op']
    if op not in OPS:
        raise ArchError(f'.op should be one of {", ".join(OPS)}, but got {op!r}')
    return TwinsBlock(str(op), read_heads(block))
