"""Number the architectures of a space without gaps, for uniform draws and iteration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .arch import Arch, Choices, Stage, Value
from .grammar import ChoiceSpace, StageSpace

if TYPE_CHECKING:
    from .space import SearchSpace


def arch_at(space: SearchSpace, index: int) -> Arch:
    """The architecture with a number from 0 to ``space.size() - 1``, by exact mixed-radix digits."""
    choices, index = _choices_at(space.choices, index)
    stages = []
    for stage in space.stages:
        index, digit = divmod(index, stage.size())
        stages.append(_stage_at(stage, digit))
    return Arch(space.family, tuple(stages), choices)


def _choices_at(space: ChoiceSpace, index: int) -> tuple[Choices, int]:
    values: dict[str, Value] = {}
    for name, options in space.options:
        index, digit = divmod(index, len(options))
        values[name] = options[digit]
    return Choices(values), index


def _stage_at(space: StageSpace, index: int) -> Stage:
    choices, index = _choices_at(space.choices, index)
    for depth in space.depths:
        if index < space.size_at_depth(depth):
            break
        index -= space.size_at_depth(depth)
    blocks: list[Choices | None] = []
    for position in range(depth):
        block = space.blocks[position]
        index, digit = divmod(index, space.block_size(position))
        if block is None or (position in space.optional and digit == space.block_size(position) - 1):
            blocks.append(None)
        else:
            blocks.append(_choices_at(block, digit)[0])
    return Stage(choices, tuple(blocks))
