"""What a NASViT network costs, in closed form, and how its architectures are read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from ..errors import ArchError, VitnasError
from ..spaces import Arch, Choices
from ..spaces.arch import Value
from .cost import Cost, priced_size
from .mbconv import hidden_width, squeezed_width
from .reading import check_names, check_out_indices, whole

HEAD_DIM = 8
"""Channels of a head's queries and keys (paper, App. B.1)."""
VALUE_RATIO = 4
"""Channels of values over those of queries."""

_STAGE = ('width', 'kernel_size', 'expand_ratio', 'stride', 'se')
_TRANSFORMER = (*_STAGE, 'mlp_ratio', 'num_windows')

Size = tuple[int, int]


class NASViTStage(NamedTuple):
    """The choices of a stage between stem and head.

    Args:
        width: Output channels.
        depth: Layers, the first always an MBConv.
        kernel_size: Side of the depth-wise kernels.
        expand_ratio: Hidden over input channels of an MBConv; 1: it has no expansion.
        stride: Of the first layer.
        se: Whether MBConvs have squeeze and excitation.
        mlp_ratio: Hidden over input channels of a transformer layer's MLPs; 0: all layers are MBConvs.
        num_windows: Into how many windows attention cuts a map.
    """

    width: int
    depth: int
    kernel_size: int
    expand_ratio: int
    stride: int
    se: bool
    mlp_ratio: int = 0
    num_windows: int = 1


class NASViTChoices(NamedTuple):
    """An architecture.

    Args:
        resolution: Side to which a classifier resizes images.
        stem: Channels of the first convolution.
        stages: The stages.
        expand_ratio: Of MBPool.
        head: Channels that MBPool gives.
    """

    resolution: int
    stem: int
    stages: tuple[NASViTStage, ...]
    expand_ratio: int
    head: int


def halved(size: Size, stride: int) -> Size:
    """Rows and columns behind a stride."""
    return -(-size[0] // stride), -(-size[1] // stride)


def stage_sizes(choices: NASViTChoices, size: Size) -> list[Size]:
    """Rows and columns of the stem's map and of every stage's."""
    sizes = [halved(size, 2)]
    for stage in choices.stages:
        sizes.append(halved(sizes[-1], stage.stride))
    return sizes


def window_side(size: Size, num_windows: int, window_size: int | None) -> int | None:
    """Side of attention's windows on a map: given, or such that there are so many; None where all tokens attend."""
    if window_size is not None:
        return window_size
    return None if num_windows == 1 else -(-min(size) // math.isqrt(num_windows))


def table_side(choices: NASViTChoices, stage: int, window_size: int | None) -> int:
    """For how many rows and columns a stage stores relative positions."""
    return window_size or stage_sizes(choices, (choices.resolution,) * 2)[stage + 1][0]


def check_window(size: int | None) -> None:
    """Check the side of windows.

    Raises:
        VitnasError: It is not a whole number above 0.
    """
    if size is not None and (type(size) is not int or size < 1):
        raise VitnasError(f'`window_size` should be a whole number above 0, but got {size!r}')


def nasvit_cost(
    arch: Arch,
    input_size: int | Size,
    num_classes: int,
    out_indices: Sequence[int] | None,
    window_size: int | None,
    scaling: bool,
    official: bool,
) -> Cost:
    """Parameters and multiply-accumulates; arguments and convention as ``NASViT.cost`` says."""
    choices = read_nasvit(arch)
    if num_classes < 0:
        raise VitnasError(f'`num_classes` should be at least 0, but got {num_classes!r}')
    size = priced_size(arch, input_size, {'out_indices': out_indices})
    check_window(window_size)
    if out_indices is None:
        last = len(choices.stages)
    else:
        check_out_indices(out_indices, 1 + len(choices.stages))
        last = max(index % (1 + len(choices.stages)) for index in out_indices)
    sizes = stage_sizes(choices, size)
    widths = [choices.stem, *(stage.width for stage in choices.stages)]
    params, macs = 29 * choices.stem, 27 * choices.stem * math.prod(sizes[0])
    for s, stage in enumerate(choices.stages):
        table = table_side(choices, s, window_size)
        more = _stage_cost(stage, widths[s], sizes[s], table, window_size, official)
        params += more[0] + bool(scaling) * bool(stage.mlp_ratio) * 2 * stage.width * (stage.depth - 1)
        macs += more[1] * (s < last)
    width = widths[last]
    if out_indices is None:
        hidden, width = hidden_width(width, choices.expand_ratio), choices.head
        params += hidden * (widths[-1] + 2 + width)
        macs += hidden * (widths[-1] * math.prod(sizes[-1]) + width)
    return Cost(params + num_classes * (width + 1), macs + num_classes * width)


@lru_cache(maxsize=65536)
def _stage_cost(
    stage: NASViTStage, channels: int, size: Size, table: int, window_size: int | None, official: bool
) -> tuple[int, int]:
    params, macs = _mbconv_cost(stage, channels, size, stage.stride)
    size = halved(size, stage.stride)
    if stage.mlp_ratio:
        more = _layer_cost(stage, size, table, window_size, official)
    else:
        more = _mbconv_cost(stage, stage.width, size, 1)
    return params + (stage.depth - 1) * more[0], macs + (stage.depth - 1) * more[1]


def _mbconv_cost(stage: NASViTStage, channels: int, size: Size, stride: int) -> tuple[int, int]:
    hidden, width = hidden_width(channels, stage.expand_ratio), stage.width
    pixels, after = math.prod(size), math.prod(halved(size, stride))
    kernel = hidden * stage.kernel_size**2
    params, macs = kernel + 2 * hidden + hidden * width + 2 * width, (kernel + hidden * width) * after
    if stage.expand_ratio != 1:
        params += hidden * (channels + 2)
        macs += channels * hidden * pixels
    if stage.se:
        squeezed = squeezed_width(hidden)
        params += 2 * hidden * squeezed + hidden + squeezed
        macs += 2 * hidden * squeezed
    if channels != width:
        params += channels * width
        macs += channels * width * after
    return params, macs


def _layer_cost(stage: NASViTStage, size: Size, table: int, window_size: int | None, official: bool) -> tuple[int, int]:
    """A transformer layer: attention, two MLPs, three norms, relative positions."""
    width, ratio, heads = stage.width, stage.mlp_ratio, stage.width // HEAD_DIM
    tokens = padded = within = math.prod(size)
    side = window_side(size, stage.num_windows, window_size)
    if side is not None:
        side = min(side, *size)
        padded, within = math.prod(-(-length // side) * side for length in size), side * side
    values = VALUE_RATIO * width
    linear = width * (2 * width + 2 * values) + 4 * ratio * width * width
    vectors = 2 * width + values + width + 2 * (ratio + 1) * width + 6 * width  # biases and norms
    params = linear + vectors + 9 * values + 2 * heads * (heads + 1) + heads * (2 * table - 1) ** 2
    products = width + values + 2 * heads * heads
    convolved = padded if official else tokens
    return params, tokens * linear + convolved * 9 * values + padded * within * products


def check_options(stage: Choices, name: str, options: Sequence[Value]) -> None:
    """Check every option of a choice of a stage, the others being as given.

    Raises:
        ArchError: One is none of NASViT's; the message goes on from the path of the stage.
    """
    for option in options:
        _read_stage(Choices({**stage, name: option}), 1)


def read_nasvit(arch: Arch) -> NASViTChoices:
    """The choices of an architecture: a stem, stages, and MBPool last.

    Raises:
        ArchError: The architecture is not NASViT's; with the path of what is wrong.
    """
    if arch.family != 'nasvit':
        raise ArchError(f'NASViT runs architectures of nasvit, but got {arch.family}')
    _read(arch.choices, ('resolution',), '')
    if len(arch.stages) < 3:
        raise ArchError(f'stages has {len(arch.stages)} entries; NASViT has a stem, stages and a head')
    last = len(arch.stages) - 1
    for s, names in ((0, ('width',)), (last, ('width', 'expand_ratio'))):
        _read(arch.stages[s].choices, names, f'stages[{s}]')
        if arch.stages[s].blocks:
            raise ArchError(f'stages[{s}].blocks has {len(arch.stages[s].blocks)} entries; stem and head have none')
    stages = []
    for s, stage in enumerate(arch.stages[1:-1], 1):
        if not stage.blocks or any(block is None or block for block in stage.blocks):
            raise ArchError(f'stages[{s}].blocks should be at least one, each without choices of its own')
        try:
            stages.append(_read_stage(stage.choices, len(stage.blocks)))
        except ArchError as err:
            raise ArchError(f'stages[{s}]{err}') from None
    head = arch.stages[-1].choices
    return NASViTChoices(
        whole(arch.choices, 'resolution'),
        whole(arch.stages[0].choices, 'width'),
        tuple(stages),
        whole(head, 'expand_ratio'),
        whole(head, 'width'),
    )


def _read(choices: Choices, names: tuple[str, ...], path: str) -> None:
    """Check that there are these choices, all whole numbers above 0."""
    try:
        check_names(choices, names, 'NASViT')
        for name in names:
            whole(choices, name)
    except ArchError as err:
        raise ArchError(f'{path}{err}'.removeprefix('.')) from None


@lru_cache(maxsize=4096)
def _read_stage(choices: Choices, depth: int) -> NASViTStage:
    transformer = 'mlp_ratio' in choices or 'num_windows' in choices
    check_names(choices, _TRANSFORMER if transformer else _STAGE, 'NASViT')
    if choices['se'] not in (0, 1):
        raise ArchError(f'.se should be 0 or 1, but got {choices["se"]!r}')
    width, kernel_size = whole(choices, 'width'), whole(choices, 'kernel_size')
    if kernel_size % 2 == 0:
        raise ArchError(f'.kernel_size should be odd, but got {kernel_size}')
    if choices['stride'] not in (1, 2):
        raise ArchError(f'.stride should be 1 or 2, but got {choices["stride"]!r}')
    plain = width, depth, kernel_size, whole(choices, 'expand_ratio'), whole(choices, 'stride'), bool(choices['se'])
    if not transformer:
        return NASViTStage(*plain)
    windows = whole(choices, 'num_windows')
    if math.isqrt(windows) ** 2 != windows:
        raise ArchError(f'.num_windows should be a square, as many in a row as in a column, but got {windows}')
    if width % HEAD_DIM:
        raise ArchError(f'.width of a transformer stage should be a multiple of {HEAD_DIM}, but got {width}')
    return NASViTStage(*plain, whole(choices, 'mlp_ratio'), windows)
