"""Dimensions of a space as S3 moves them: one per stage and choice, the same for all blocks of a stage (Eq. 6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import SpaceError
from .arch import Arch, Value
from .grammar import ChoiceSpace, Options, StageSpace

if TYPE_CHECKING:
    from .space import SearchSpace

DIGITS = 9
"""Decimals of a moved option; further ones are rounding errors."""


@dataclass(frozen=True)
class StageDimension:
    """One choice of one stage, or of the whole network.

    Args:
        path: ``resolution``, ``stages[0].embed_dim``, ``stages[0].depth`` or ``stages[0].block.num_heads``, the last
            for all blocks of the stage.
        name: Name of the choice: ``resolution``, ``embed_dim``, ``depth``, ``num_heads``.
        options: Values of the choice.
        stage: Index of the stage; None for the whole network.
        of_block: Whether each block of the stage has its own value.
    """

    path: str
    name: str
    options: Options
    stage: int | None
    of_block: bool = False

    def values(self, arch: Arch) -> tuple[Value, ...]:
        """Values of an architecture: one, or one per present block."""
        if self.stage is None:
            return (arch.choices[self.name],)
        stage = arch.stages[self.stage]
        if self.of_block:
            return tuple(block[self.name] for block in stage.blocks if block is not None)
        return (len(stage.blocks),) if self.name == 'depth' else (stage.choices[self.name],)


def stage_dimensions(space: SearchSpace) -> tuple[StageDimension, ...]:
    """The dimensions of a space, stage by stage.

    A stage without blocks, with optional blocks or with empty places has no depth to move.

    Raises:
        SpaceError: The blocks of a stage offer different options.
    """
    found = [StageDimension(name, name, options, None) for name, options in space.choices.options]
    for s, stage in enumerate(space.stages):
        path = f'stages[{s}]'
        found += [StageDimension(f'{path}.{name}', name, options, s) for name, options in stage.choices.options]
        if stage.blocks and not stage.optional and None not in stage.blocks:
            found.append(StageDimension(f'{path}.depth', 'depth', stage.depths, s))
        found += [
            StageDimension(f'{path}.block.{name}', name, options, s, of_block=True)
            for name, options in _block_of(stage, path).options
        ]
    return tuple(found)


def evolve(space: SearchSpace, shifts: Mapping[str, float]) -> SearchSpace:
    """See :meth:`SearchSpace.evolve`."""
    from .space import SearchSpace

    known = [dimension.path for dimension in stage_dimensions(space)]
    for path in shifts:
        if path not in known:
            raise SpaceError(f'there is no dimension {path} to move; the space has {", ".join(known)}')
    stages = tuple(_moved_stage(stage, f'stages[{s}]', shifts) for s, stage in enumerate(space.stages))
    return SearchSpace(space.family, stages, _moved_choices(space.choices, '', shifts), space.name)


def _moved_stage(stage: StageSpace, path: str, shifts: Mapping[str, float]) -> StageSpace:
    choices = _moved_choices(stage.choices, f'{path}.', shifts)
    if f'{path}.depth' not in shifts and not any(name.startswith(f'{path}.block.') for name in shifts):
        return StageSpace(choices, stage.blocks, stage.depths, stage.optional)
    block = _moved_choices(_block_of(stage, path), f'{path}.block.', shifts)
    moved = moved_options(stage.depths, shifts.get(f'{path}.depth', 0), f'{path}.depth')
    depths = tuple(depth for depth in moved if type(depth) is int)
    if len(depths) < len(moved):
        raise SpaceError(f'{path}.depth should move by whole blocks, but got {shifts[f"{path}.depth"]}')
    empty = [b for b, place in enumerate(stage.blocks) if place is None]
    blocks = tuple(None if b in empty else block for b in range(depths[-1]))
    return StageSpace(choices, blocks, depths, stage.optional)


def _moved_choices(space: ChoiceSpace, path: str, shifts: Mapping[str, float]) -> ChoiceSpace:
    return ChoiceSpace(
        tuple(
            (name, moved_options(options, shifts.get(f'{path}{name}', 0), f'{path}{name}'))
            for name, options in space.options
        )
    )


def moved_options(options: Options, shift: float, path: str) -> Options:
    """Add a shift to all options, and drop those that are no longer above zero (Eq. 8).

    Raises:
        SpaceError: The options are words, or no option is left.
    """
    if shift == 0:
        return options
    moved = []
    for value in options:
        if isinstance(value, str):
            raise SpaceError(f'{path} offers words, {", ".join(map(str, options))}, which cannot be moved')
        new = round(value + shift, DIGITS)
        moved.append(int(new) if type(value) is int and new == int(new) else new)
    left = tuple(value for value in moved if value > 0)
    if not left:
        raise SpaceError(f'{path} moved by {shift:g} has no option above 0 left: {", ".join(map(str, moved))}')
    return left


def _block_of(stage: StageSpace, path: str) -> ChoiceSpace:
    """The common choices of the blocks of a stage."""
    different = {block for block in stage.blocks if block is not None}
    if len(different) > 1:
        raise SpaceError(
            f'{path}.blocks offer different options; all blocks of a stage move together, so give `block` instead'
        )
    return next(iter(different), ChoiceSpace())
