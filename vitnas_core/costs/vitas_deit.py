"""What a network of ViTAS's DeiT space costs, in closed form, and how its architectures are read."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from ..errors import ArchError, VitnasError
from ..spaces import Arch, Choices
from .cost import Cost, as_size
from .reading import check_names, read_width, token_grid, whole

BLOCK_CHOICES = ('num_heads', 'qkv_dim', 'hidden_dim')
"""What blocks of ViTAS's spaces choose."""


class ViTASBlock(NamedTuple):
    """The choices of a block: heads, the width of queries, keys and values together, hidden units of the MLP."""

    num_heads: int
    qkv_dim: int
    hidden_dim: int

    @property
    def inner(self) -> int:
        """The width of queries, of keys, and of values."""
        return self.qkv_dim // 3


class ViTASDeiTArch(NamedTuple):
    """The choices of a network; absent blocks are None."""

    patch_size: int
    embed_dim: int
    blocks: tuple[ViTASBlock | None, ...]


def vitas_deit_cost(
    arch: Arch, input_size: int | tuple[int, int], num_classes: int, img_size: int | tuple[int, int]
) -> Cost:
    """Parameters and multiply-accumulates; arguments and convention as ``ViTASDeiT.cost`` says."""
    network = read_vitas_deit(arch)
    if num_classes < 0:
        raise VitnasError(f'`num_classes` should be at least 0, but got {num_classes!r}')
    width, patch = network.embed_dim, 3 * network.patch_size**2
    rows, columns = token_grid(as_size('input_size', input_size), network.patch_size)
    stored = token_grid(as_size('img_size', img_size), network.patch_size)
    params = width * (patch + 1) + width + width * (1 + stored[0] * stored[1]) + 2 * width
    macs = rows * columns * patch * width
    for block in network.blocks:
        more = (0, 0) if block is None else block_cost(width, block, 1 + rows * columns)
        params += more[0]
        macs += more[1]
    return Cost(params + num_classes * (width + 1), macs + num_classes * width)


def published_macs(arch: Arch, input_size: int | tuple[int, int] = 224, num_classes: int = 1000) -> int:
    """Multiply-accumulates as ViTAS's code counts them, which its paper prints.

    It leaves the class token out, and lets the classifier read every other token.

    Args:
        arch: An architecture of the DeiT space.
        input_size: Side, or (height, width), of the image. Defaults to 224.
        num_classes: Classes of the linear head. Defaults to 1000.
    """
    network = read_vitas_deit(arch)
    rows, columns = token_grid(as_size('input_size', input_size), network.patch_size)
    tokens, width = rows * columns, network.embed_dim
    blocks = sum(block_cost(width, block, tokens)[1] for block in network.blocks if block is not None)
    return tokens * width * (3 * network.patch_size**2 + num_classes) + blocks


@lru_cache(maxsize=16384)
def block_cost(width: int, block: ViTASBlock, tokens: int) -> tuple[int, int]:
    """Parameters and multiply-accumulates of a block in which every token attends to every other."""
    products = 4 * width * block.inner + 2 * width * block.hidden_dim
    params = products + block.qkv_dim + width + block.hidden_dim + width + 4 * width
    return params, tokens * products + 2 * tokens * tokens * block.inner


def read_vitas_deit(arch: Arch) -> ViTASDeiTArch:
    """Patch size, width and blocks.

    Raises:
        ArchError: The architecture is not of ViTAS's DeiT space; with the path of what is wrong.
    """
    if arch.family != 'vitas_deit':
        raise ArchError(f'ViTASDeiT runs architectures of vitas_deit, but got {arch.family}')
    if len(arch.stages) != 1:
        raise ArchError(f'stages has {len(arch.stages)} entries; ViTASDeiT has one stage')
    patch_size = _read_patch_size(arch.choices)
    path, blocks = 'stages[0]', []
    try:
        width = read_width(arch.stages[0].choices, 'ViTASDeiT')
        for b, block in enumerate(arch.stages[0].blocks):
            path = f'stages[0].blocks[{b}]'
            blocks.append(None if block is None else _read_block(block))
    except ArchError as err:
        raise ArchError(f'{path}{err}') from None
    return ViTASDeiTArch(patch_size, width, tuple(blocks))


@lru_cache(maxsize=64)
def _read_patch_size(choices: Choices) -> int:
    try:
        check_names(choices, ('patch_size',), 'ViTASDeiT')
        return whole(choices, 'patch_size')
    except ArchError as err:
        raise ArchError(str(err).removeprefix('.')) from None


@lru_cache(maxsize=16384)
def _read_block(block: Choices) -> ViTASBlock:
    check_names(block, BLOCK_CHOICES, 'ViTASDeiT')
    return read_heads(block)


def read_heads(block: Choices) -> ViTASBlock:
    """Heads, their width and hidden units of a block.

    Raises:
        ArchError: One is no whole number above 0, or the heads do not divide the width.
    """
    heads, dim, hidden = (whole(block, name) for name in BLOCK_CHOICES)
    if dim % (3 * heads):
        raise ArchError(f'.qkv_dim is {dim}, which {heads} heads do not divide into queries, keys and values')
    return ViTASBlock(heads, dim, hidden)
