"""Picture of an architecture, block by block: its choices and widths."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle

from ..spaces import Arch, Stage
from ..spaces.arch import Choices, Value
from . import theme
from .formats import choice_text, plain

# All in inches, as are the units of the axes; y points down.
_WIDTH, _EDGE, _GAP, _PAD = 9.6, 0.12, 0.09, 0.1
_CHIP, _LABEL, _ROW, _NUMBER = 1.75, 1.05, 0.31, 0.24
_LETTER, _MOST_COLUMNS = 0.068, 8

_ENDS = ('Stem', 'Head')


class _Scale(NamedTuple):
    """Scale of the bars: the largest value of each numeric choice, and the colours."""

    most: dict[str, float]
    color: dict[str, str]


def draw_arch(arch: Arch, title: str = '') -> Figure:
    """Draw an architecture of any family: one line of globals, one band per stage, one box per block.

    Numeric choices have a bar, relative to the largest value of that choice in this architecture. Stems and heads,
    such as NASViT's, have no bars: their numbers do not compare with those of stages. Absent blocks are dashed
    outlines. Boxes wrap into rows.

    Args:
        arch: The architecture.
        title: Line above the picture. Defaults to '': none.
    """
    blocks = [block for stage in arch.stages for block in stage.blocks if block is not None]
    names = _stage_names(arch)
    stages = [stage for stage, name in zip(arch.stages, names) if name not in _ENDS]
    scale = _scale([*(stage.choices for stage in stages), *blocks])
    columns = _columns(blocks)
    heights = [_stage_height(stage, columns) for stage in arch.stages]
    top = 0.42 + (0.3 if title else 0)
    height = top + sum(heights) + _GAP * len(heights) + 0.05
    with theme.context():
        figure = Figure(figsize=(_WIDTH, height))
        figure.set_layout_engine('none')  # positions are computed here
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set(xlim=(0, _WIDTH), ylim=(height, 0))
        axes.set_axis_off()
        if title:
            axes.text(_EDGE, 0.22, plain(title, 100), fontsize=12, fontweight='bold', va='center')
        headline = _headline(arch, len(stages))
        axes.text(_EDGE, top - 0.2, headline, fontsize=9, color=theme.FAINT_INK, va='center')
        for name, stage, tall in zip(names, arch.stages, heights):
            _draw_stage(axes, stage, name, top, tall, columns, None if name in _ENDS else scale)
            top += tall + _GAP
    return figure


def _stage_names(arch: Arch) -> list[str]:
    """Name the stages; those before or after all blocks, with other choices than stages of blocks, are stem or head."""
    places = [i for i, stage in enumerate(arch.stages) if stage.blocks]
    choices = [set(arch.stages[i].choices) for i in places]
    names: list[str] = []
    for i, stage in enumerate(arch.stages):
        outside = bool(places) and not places[0] <= i <= places[-1]
        if outside and set(stage.choices) not in choices:
            names.append(_ENDS[i > places[-1]])
        else:
            names.append(f'Stage {1 + sum(name not in _ENDS for name in names)}')
    return names


def _headline(arch: Arch, stages: int) -> str:
    depth = sum(stage.depth for stage in arch.stages)
    words = [plain(arch.family, 30), _count(stages, 'stage'), _count(depth, 'block')]
    return plain('   ·   '.join(words + [f'{plain(n, 24)} {choice_text(v)}' for n, v in arch.choices.items()]), 140)


def _count(number: int, word: str) -> str:
    return f'{number} {word}' if number == 1 else f'{number} {word}s'


def _scale(all_choices: Iterable[Mapping[str, Value]]) -> _Scale:
    most: dict[str, float] = {}
    names: dict[str, None] = {}
    for choices in all_choices:
        names.update(dict.fromkeys(choices))
        for name, value in choices.items():
            if not isinstance(value, str):
                most[name] = max(most.get(name, 0.0), float(value))
    return _Scale(most, {name: theme.PALETTE[i % len(theme.PALETTE)] for i, name in enumerate(names)})


def _columns(blocks: Iterable[Choices]) -> int:
    """Number of boxes that fit side by side, given the longest text in a box."""
    letters = max((len(_name(n)) + len(choice_text(v)) for block in blocks for n, v in block.items()), default=0)
    room = _WIDTH - 2 * (_EDGE + _PAD) + _GAP
    return max(1, min(_MOST_COLUMNS, int(room / ((letters + 2) * _LETTER + 0.12 + _GAP))))


def _name(name: str) -> str:
    return plain(name, 24)


def _chip_rows(stage: Stage) -> int:
    a_row = int((_WIDTH - 2 * _EDGE - _LABEL) / _CHIP)
    return max(1, -(-len(stage.choices) // a_row))


def _box_height(stage: Stage) -> float:
    return _NUMBER + _ROW * max((len(block) for block in stage.blocks if block is not None), default=0) + 0.03


def _stage_height(stage: Stage, columns: int) -> float:
    rows = -(-len(stage.blocks) // columns)
    return _PAD + _chip_rows(stage) * 0.36 + rows * (_box_height(stage) + _GAP) + (_PAD - _GAP if rows else 0)


def _draw_stage(
    axes: Axes, stage: Stage, name: str, top: float, height: float, columns: int, scale: _Scale | None
) -> None:
    _box(axes, _EDGE, top, _WIDTH - 2 * _EDGE, height, facecolor=theme.BAND, edgecolor=theme.TRACK)
    left, y = _EDGE + _PAD, top + _PAD
    axes.text(left, y + 0.09, name, fontsize=9.5, fontweight='bold', va='center')
    if stage.blocks:
        axes.text(left, y + 0.25, _count(stage.depth, 'block'), fontsize=7.5, color=theme.FAINT_INK, va='center')
    a_row = int((_WIDTH - 2 * _EDGE - _LABEL) / _CHIP)
    for i, (choice, value) in enumerate(stage.choices.items()):
        x = _EDGE + _LABEL + i % a_row * _CHIP
        _draw_choice(axes, choice, value, x, y + i // a_row * 0.36, _CHIP - 0.25, scale)
    y += _chip_rows(stage) * 0.36
    box = (_WIDTH - 2 * (_EDGE + _PAD) + _GAP) / columns - _GAP
    tall = _box_height(stage)
    for i, block in enumerate(stage.blocks):
        place = left + i % columns * (box + _GAP), y + i // columns * (tall + _GAP)
        _draw_block(axes, block, i + 1, *place, box, tall, scale)


def _draw_block(
    axes: Axes,
    block: Choices | None,
    number: int,
    x: float,
    y: float,
    width: float,
    height: float,
    scale: _Scale | None,
) -> None:
    if block is None:
        _box(axes, x, y, width, height, facecolor='none', edgecolor=theme.FAINT, linestyle=(0, (4, 3)), gid='absent')
        axes.text(x + 0.07, y + 0.13, f'{number}  absent', fontsize=7.5, color=theme.FAINT_INK, va='center')
        return
    _box(axes, x, y, width, height, facecolor='white', edgecolor=theme.FAINT, gid='block')
    axes.text(x + 0.07, y + 0.13, str(number), fontsize=8, fontweight='bold', va='center')
    for i, (name, value) in enumerate(block.items()):
        _draw_choice(axes, name, value, x + 0.07, y + _NUMBER + i * _ROW, width - 0.14, scale)


def _draw_choice(axes: Axes, name: str, value: Value, x: float, y: float, width: float, scale: _Scale | None) -> None:
    """Name on the left, value on the right, its bar beneath if there is a scale."""
    axes.text(x, y + 0.07, _name(name), fontsize=7.5, color=theme.FAINT_INK, va='center')
    axes.text(x + width, y + 0.07, choice_text(value), fontsize=8, fontweight='bold', ha='right', va='center')
    if isinstance(value, str) or scale is None:
        return
    most = scale.most[name]
    part = max(0.0, float(value) / most) if most > 0 else 0.0
    axes.add_patch(Rectangle((x, y + 0.17), width, 0.06, facecolor=theme.TRACK, linewidth=0))
    axes.add_patch(
        Rectangle((x, y + 0.17), width * part, 0.06, facecolor=scale.color[name], linewidth=0, gid=f'bar {_name(name)}')
    )


def _box(axes: Axes, x: float, y: float, width: float, height: float, **style: Any) -> None:
    corner = 'round,pad=0,rounding_size=0.05'
    axes.add_patch(FancyBboxPatch((x, y), width, height, boxstyle=corner, linewidth=0.9, **style))
