"""NASViT's choices and the cost of its networks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

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
    remembered,
    table,
    total,
)
from ...errors import ArchError, SpaceError
from ...spaces.arch import Arch, Choices, Stage
from ...spaces.grammar import ChoiceSpace
from ...spaces.records import NetworkRecord, StageRecord, flag, whole
from ...spaces.schema import Schema
from ...spaces.space import SearchSpace
from ...utils import checks

HEAD_DIM = 8
"""Channels of a head's queries and keys (paper, App. B.1)."""
VALUE_RATIO = 4
"""Ratio of a head's value channels to its query channels."""

Size = tuple[int, int]


@dataclass(frozen=True, eq=False)
class StemChoices(StageRecord):
    """Choices of the first convolution."""

    width: int = whole()


@dataclass(frozen=True, eq=False)
class ConvChoices(StageRecord):
    """Choices of a stage of MBConvs."""

    width: int = whole()
    kernel_size: int = whole()
    expand_ratio: int = whole()
    stride: int = whole('same', options=(1, 2))
    se: bool = flag()

    def check(self) -> None:
        """Refuse even kernel sizes, which have no centre."""
        if self.kernel_size % 2 == 0:
            raise ArchError(f'.kernel_size should be odd, but got {self.kernel_size}')

    @property
    def depth(self) -> int:
        """Number of layers; the first is always an MBConv."""
        return len(self.blocks)


@dataclass(frozen=True, eq=False)
class TransformerChoices(ConvChoices):
    """Choices of a stage of an MBConv and transformer layers."""

    mlp_ratio: int = whole()
    num_windows: int = whole('free', ascending=False)

    def check(self) -> None:
        """Refuse numbers of windows that are not squares, and widths that are no multiple of the head size."""
        super().check()
        if math.isqrt(self.num_windows) ** 2 != self.num_windows:
            raise ArchError(
                f'.num_windows should be a square, as many in a row as in a column, but got {self.num_windows}'
            )
        if self.width % HEAD_DIM:
            raise ArchError(f'.width of a transformer stage should be a multiple of {HEAD_DIM}, but got {self.width}')


@dataclass(frozen=True, eq=False)
class HeadChoices(StageRecord):
    """Choices of MBPool, the last stage."""

    width: int = whole()
    expand_ratio: int = whole()


@dataclass(frozen=True, eq=False)
class NetworkChoices(NetworkRecord):
    """Choices of a network: a stem, stages, and MBPool last.

    Args:
        resolution: Side to which a classifier resizes images.
    """

    resolution: int = whole()

    def maps(self, size: Size) -> list[Size]:
        """Return rows and columns of the maps of all stages but the last."""
        sizes = [grid(size, 2)]
        for stage in self.stages[1:-1]:
            sizes.append(grid(sizes[-1], stage.stride))
        return sizes

    def reach(self, s: int, window_size: int | None) -> int:
        """Return the number of rows and columns for which a stage stores relative positions."""
        return window_size or self.maps((self.resolution, self.resolution))[s][0]


class _Schema(Schema):
    """Schema whose stage types depend on the position of a stage and on whether it has an MLP."""

    def stage_type(self, stages: int, s: int, choices: Choices | ChoiceSpace) -> Any:
        """Return the type of a stage: stem, head, convolutions or transformers."""
        if s == 0:
            return StemChoices
        if s == stages - 1:
            return HeadChoices
        names = [name for name, _ in choices.options] if isinstance(choices, ChoiceSpace) else choices
        return TransformerChoices if 'mlp_ratio' in names or 'num_windows' in names else ConvChoices

    def check_count(self, kind: Any, stage: Stage) -> None:
        """Refuse blocks in stem and head, and other stages without blocks."""
        if kind in (StemChoices, HeadChoices):
            if stage.blocks:
                raise ArchError(f'.blocks has {len(stage.blocks)} entries; stem and head have none')
        elif not stage.blocks:
            raise ArchError('.blocks should have at least one entry; entries have no choices of their own')

    def read(self, arch: Arch) -> Any:
        """Read an architecture; refuse one without a stage between stem and head."""
        if arch.family == self.family and len(arch.stages) < 3:
            raise ArchError(f'stages has {len(arch.stages)} entries; NASViT has a stem, stages and a head')
        return super().read(arch)

    def check_space(self, space: SearchSpace) -> None:
        """Check a space; refuse also an expansion of 1 among others, as it means an MBConv without expansion layer."""
        super().check_space(space)
        for s, stage in enumerate(space.stages):
            options = dict(stage.choices.options).get('expand_ratio', ())
            if 1 in options and len(options) > 1:
                raise SpaceError(
                    f'stages[{s}].expand_ratio of the NASViT space should be 1 or larger numbers, but got '
                    f'{list(options)}'
                )


SCHEMA = _Schema('nasvit', 'NASViT', NetworkChoices)


def rounded(channels: float) -> int:
    """Round to the nearest multiple of 8, but not below nine tenths of the number (MobileNet's rule)."""
    nearest = max(8, int(channels + 4) // 8 * 8)
    return nearest + 8 if nearest < 0.9 * channels else nearest


def hidden_width(channels: int, expand_ratio: int) -> int:
    """Return the channels between the two 1 × 1 convolutions of an MBConv; without expansion, the input channels."""
    return channels if expand_ratio == 1 else rounded(channels * expand_ratio)


def squeezed_width(hidden: int) -> int:
    """Return the channels between the two layers of squeeze and excitation."""
    return rounded(hidden // 4)


def window_side(size: Size, num_windows: int, window_size: int | None) -> int | None:
    """Return the side of attention windows on a map: as given, or by their number; None if all tokens attend."""
    if window_size is not None:
        return window_size
    return None if num_windows == 1 else -(-min(size) // math.isqrt(num_windows))


def check_window(name: str, size: int | None) -> int | None:
    """Check the side of windows.

    Raises:
        VitnasError: It is not a whole number above 0.
    """
    return None if size is None else checks.whole(name, size)


def cost(
    network: NetworkChoices,
    size: Size,
    num_classes: int,
    *,
    out_indices: Sequence[int] | None,
    window_size: int | None,
    scaling: bool,
    official: bool,
) -> Count:
    """Count by the paper's convention: convolutions, linear layers, attention and the mixing of heads.

    A classifier, without ``out_indices``, resizes images and has MBPool.
    """
    stem, *middle, head = network.stages
    if out_indices is None:
        size, last = (network.resolution, network.resolution), len(network.stages) - 1
    else:
        count = 1 + len(middle)
        last = max(index % count for index in checks.stage_indices('out_indices', out_indices, count))
    maps, reaches = network.maps(size), network.maps((network.resolution, network.resolution))
    counted, before = [[conv(3, stem.width, 3, math.prod(maps[0]), bias=False), norm(stem.width)]], stem.width
    for s, stage in enumerate(middle, 1):
        reach = window_size or reaches[s][0]
        counted.append([stage_cost(stage, before, maps[s - 1], reach, window_size, scaling, official)])
        before = stage.width
    if out_indices is None:
        hidden = hidden_width(before, head.expand_ratio)
        pool = [conv(before, hidden, 1, math.prod(maps[-1]), bias=False), norm(hidden)]
        counted.append([*pool, linear(hidden, head.width, bias=False)])
        return total(counted, last, head.width, num_classes)
    return total(counted, last, network.stages[last].width, num_classes)


@remembered
def stage_cost(
    stage: ConvChoices, channels: int, size: Size, reach: int, window_size: int | None, scaling: bool, official: bool
) -> Count:
    """Count a stage.

    Args:
        stage: Its choices.
        channels: Input channels.
        size: Rows and columns of the input.
        reach: Number of rows and columns for which relative positions are stored.
        window_size: Side of windows; None for those of the architecture.
        scaling: Whether there are scaling vectors.
        official: Whether the convolution of values, too, stops at window borders.
    """
    first, size = _mbconv(stage, channels, size, stage.stride), grid(size, stage.stride)
    if isinstance(stage, TransformerChoices):
        more = _layer(stage, size, reach, window_size, scaling, official)
    else:
        more = _mbconv(stage, stage.width, size, 1)
    return add(first, *[more] * (stage.depth - 1))


def _mbconv(stage: ConvChoices, channels: int, size: Size, stride: int) -> Count:
    hidden, width = hidden_width(channels, stage.expand_ratio), stage.width
    pixels, after = math.prod(size), math.prod(grid(size, stride))
    squeezed = squeezed_width(hidden)
    return add(
        add(conv(channels, hidden, 1, pixels, bias=False), norm(hidden)) if stage.expand_ratio != 1 else NOTHING,
        depthwise(hidden, stage.kernel_size, after, bias=False),
        norm(hidden),
        add(linear(hidden, squeezed), linear(squeezed, hidden)) if stage.se else NOTHING,
        conv(hidden, width, 1, after, bias=False),
        norm(width),
        conv(channels, width, 1, after, bias=False) if channels != width else NOTHING,
    )


def _layer(
    stage: TransformerChoices, size: Size, reach: int, window_size: int | None, scaling: bool, official: bool
) -> Count:
    """Count a transformer layer: attention with mixed heads and convolved values, and two MLPs."""
    width, heads = stage.width, stage.width // HEAD_DIM
    hidden, values = stage.mlp_ratio * width, VALUE_RATIO * width
    tokens = padded = within = math.prod(size)
    side = window_side(size, stage.num_windows, window_size)
    if side is not None:
        side = min(side, *size)
        padded, within = math.prod(grid(size, side)) * side * side, side * side
    mlp = add(norm(width), linear(width, hidden, tokens), linear(hidden, width, tokens))
    return add(
        norm(width),
        linear(width, 2 * width + values, tokens),
        depthwise(values, 3, padded if official else tokens, bias=False),
        attention(width, padded, within, values),
        table(heads, 2 * reach - 1, 2 * reach - 1),
        linear(heads, heads, padded * within),
        linear(heads, heads, padded * within),
        linear(values, width, tokens),
        mlp,
        mlp,
        table(2, width) if scaling else NOTHING,
    )
