"""What an AutoFormer costs, in closed form, and how its architectures are read."""

from __future__ import annotations

import math
from functools import lru_cache

from ..errors import ArchError, VitnasError
from ..spaces import Arch, Choices
from .cost import Cost, as_size
from .reading import check_names, read_ratio, read_width, token_grid, whole

HEAD_DIM = 64
"""Size of a head, whatever their number: q, k and v may be wider or narrower than the tokens."""

PEG_SIDE = 3
"""Side of the filters that make conditional positions (CPVT's PEG)."""

POSITIONS = ('absolute', 'conditional', 'none')
"""What ``position`` of an AutoFormer may be."""


def autoformer_cost(
    arch: Arch,
    input_size: int | tuple[int, int],
    num_classes: int,
    img_size: int | tuple[int, int],
    patch_size: int,
    position: str,
    reach: int,
    scaling: bool,
) -> Cost:
    """Parameters and multiply-accumulates; arguments and convention as ``AutoFormer.cost`` says."""
    width, choices = read_autoformer(arch)
    if num_classes < 0:
        raise VitnasError(f'`num_classes` should be at least 0, but got {num_classes!r}')
    if position not in POSITIONS:
        raise VitnasError(f'`position` should be one of {", ".join(POSITIONS)}, but got {position!r}')
    patches = math.prod(token_grid(as_size('input_size', input_size), patch_size))
    stored = math.prod(token_grid(as_size('img_size', img_size), patch_size)) + 1 if position == 'absolute' else 0
    params, macs = _outside_cost(width, patches, num_classes, stored, patch_size)
    if position == 'conditional':  # the class token is not filtered
        params += width * (PEG_SIDE * PEG_SIDE + 1)
        macs += patches * width * PEG_SIDE * PEG_SIDE
    for heads, ratio in choices:
        more = _block_cost(width, heads, ratio, patches + 1, reach)
        params += more[0] + scaling * 2 * width
        macs += more[1]
    return Cost(params, macs)


@lru_cache(maxsize=4096)
def _block_cost(width: int, heads: int, ratio: float, tokens: int, reach: int) -> tuple[int, int]:
    inner, hidden = HEAD_DIM * heads, int(width * ratio)
    weights = width * 3 * inner + inner * width + 2 * width * hidden
    biases = 3 * inner + width + hidden + width
    norms, tables = 4 * width, 4 * (2 * reach + 2) * HEAD_DIM if reach else 0
    return weights + biases + norms + tables, tokens * weights + 2 * tokens * tokens * inner


def _outside_cost(width: int, patches: int, num_classes: int, stored: int, patch_size: int) -> tuple[int, int]:
    """Patches, class token, ``stored`` positions, final norm and head."""
    pixels = 3 * patch_size * patch_size
    params = width * (pixels + 1) + width + stored * width + 2 * width + num_classes * (width + 1)
    return params, patches * width * pixels + width * num_classes


def read_autoformer(arch: Arch) -> tuple[int, list[tuple[int, float]]]:
    """embed_dim, and (num_heads, mlp_ratio) of each block.

    Raises:
        ArchError: The architecture is not AutoFormer's; with the path of what is wrong.
    """
    if arch.family != 'autoformer' or len(arch.stages) != 1:
        raise ArchError(
            f'AutoFormer runs architectures of autoformer with one stage, but got {arch.family} with {len(arch.stages)}'
        )
    if arch.choices:
        raise ArchError(f'{next(iter(arch.choices))} is unknown; AutoFormer has no choice here')
    stage, choices = arch.stages[0], []
    try:
        width = read_width(stage.choices, 'AutoFormer')
    except ArchError as err:
        raise ArchError(f'stages[0]{err}') from None
    if not stage.blocks:
        raise ArchError('stages[0].blocks is empty; AutoFormer has at least one block')
    try:
        for block in stage.blocks:
            choices.append(_read_block(block, width))
    except ArchError as err:
        raise ArchError(f'stages[0].blocks[{len(choices)}]{err}') from None
    return width, choices


@lru_cache(maxsize=4096)
def _read_block(block: Choices | None, width: int) -> tuple[int, float]:
    if block is None:
        raise ArchError(' is absent; AutoFormer leaves out only last blocks')
    check_names(block, ('num_heads', 'mlp_ratio'), 'AutoFormer')
    return whole(block, 'num_heads'), read_ratio(block, width)
