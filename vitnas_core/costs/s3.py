"""What an S3 network costs, in closed form, and how its architectures are read."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from ..errors import ArchError, VitnasError
from ..spaces import Arch, Choices
from .cost import Cost, as_size
from .reading import check_names, check_out_indices, read_ratio, read_width, stage_maps, whole

HEAD_DIM = 32
"""Size of a head, whatever their number: q, k and v may be wider or narrower than the tokens."""


class S3Block(NamedTuple):
    """The choices of a block."""

    num_heads: int
    mlp_ratio: float
    window_size: int


class S3Stage(NamedTuple):
    """The choices of a stage."""

    embed_dim: int
    blocks: tuple[S3Block, ...]


def s3_cost(
    arch: Arch,
    input_size: int | tuple[int, int],
    num_classes: int,
    img_size: int | tuple[int, int],
    patch_size: int,
    out_indices: Sequence[int],
    scaling: bool,
) -> Cost:
    """Parameters and multiply-accumulates; arguments and convention as ``S3.cost`` says."""
    stages = read_s3(arch)
    if num_classes < 0:
        raise VitnasError(f'`num_classes` should be at least 0, but got {num_classes!r}')
    maps = stage_maps(as_size('input_size', input_size), patch_size, len(stages))
    sides = [min(size) for size in stage_maps(as_size('img_size', img_size), patch_size, len(stages))]
    check_out_indices(out_indices, len(stages))
    outputs = [index % len(stages) for index in out_indices]
    pixels = 3 * patch_size * patch_size
    params, macs = 0, maps[0][0] * maps[0][1] * stages[0].embed_dim * pixels
    previous = 0
    for s, (stage, size, side) in enumerate(zip(stages, maps, sides)):
        width = stage.embed_dim
        params += 8 * previous + 4 * previous * width if s else width * (pixels + 1) + 2 * width
        params += 2 * width * (s in outputs)
        runs = s <= max(outputs)
        macs += runs * size[0] * size[1] * 4 * previous * width
        for block in stage.blocks:
            more = _block_cost(width, block, size, side)
            params += more[0] + scaling * 2 * width
            macs += runs * more[1]
        previous = width
    width = stages[outputs[-1]].embed_dim
    return Cost(params + num_classes * (width + 1), macs + num_classes * width)


@lru_cache(maxsize=16384)
def _block_cost(width: int, block: S3Block, size: tuple[int, int], side: int) -> tuple[int, int]:
    """A block on a map of a size; ``side`` is that of the map for which its table is stored."""
    stored = min(block.window_size, side)
    window = min(stored, *size)
    tokens = size[0] * size[1]
    padded = -(-size[0] // window) * -(-size[1] // window) * window * window
    inner, hidden = HEAD_DIM * block.num_heads, int(width * block.mlp_ratio)
    biases = 3 * inner + width + hidden + width
    table = (2 * stored - 1) ** 2 * block.num_heads
    params = 4 * width * inner + 2 * width * hidden + biases + 4 * width + table
    macs = padded * 3 * width * inner + 2 * padded * window * window * inner
    return params, macs + tokens * (inner * width + 2 * width * hidden)


def read_s3(arch: Arch) -> tuple[S3Stage, ...]:
    """embed_dim and blocks of each stage.

    Raises:
        ArchError: The architecture is not S3's; with the path of what is wrong.
    """
    if arch.family != 's3':
        raise ArchError(f'S3 runs architectures of s3, but got {arch.family}')
    if arch.choices:
        raise ArchError(f'{next(iter(arch.choices))} is unknown; S3 has no choice here')
    stages = []
    for s, stage in enumerate(arch.stages):
        path, blocks = f'stages[{s}]', []
        try:
            width = read_width(stage.choices, 'S3')
            if not stage.blocks:
                raise ArchError('.blocks is empty; a stage of S3 has at least one block')
            for b, block in enumerate(stage.blocks):
                path = f'stages[{s}].blocks[{b}]'
                blocks.append(_read_block(block, width))
        except ArchError as err:
            raise ArchError(f'{path}{err}') from None
        stages.append(S3Stage(width, tuple(blocks)))
    return tuple(stages)


@lru_cache(maxsize=4096)
def _read_block(block: Choices | None, width: int) -> S3Block:
    if block is None:
        raise ArchError(' is absent; S3 leaves out only last blocks')
    check_names(block, ('num_heads', 'mlp_ratio', 'window_size'), 'S3')
    return S3Block(whole(block, 'num_heads'), read_ratio(block, width), whole(block, 'window_size'))
