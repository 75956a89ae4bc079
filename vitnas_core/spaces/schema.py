"""``Schema``: reads the architectures of a family and checks its search spaces, from records declared once."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

from ..errors import ArchError, SpaceError
from .arch import Arch, Choices, Stage
from .grammar import ChoiceSpace
from .records import NetworkRecord, Record, StageRecord, read_record, with_blocks, with_field
from .space import SearchSpace

_MOST_KNOWN = 65536
"""Largest number of cached blocks per stage."""


class Schema:
    """The choices of a family.

    Args:
        family: Value of ``family`` in architecture files.
        who: Name of the backbone in error messages.
        network: The record of a network.
        stage: The record of a stage.
        block: The record of a block.
        num_stages: Number of stages. Defaults to None: any number.
        absent: Blocks that may be absent: the ``'last'`` ones or ``'any'``. Defaults to ``'last'``.
        empty: Whether a stage may have no blocks. Defaults to False.
    """

    def __init__(
        self,
        family: str,
        who: str,
        network: type[NetworkRecord] = NetworkRecord,
        stage: type[StageRecord] = StageRecord,
        block: type[Record] = Record,
        num_stages: int | None = None,
        absent: str = 'last',
        empty: bool = False,
    ) -> None:
        self.family, self.who, self.num_stages = family, who, num_stages
        self.network: Any = network  # mypy takes no class of ours as hashable
        self.stage: Any = stage
        self.block: Any = block
        self.absent, self.empty = absent, empty
        self._known: dict[tuple[Any, Choices], tuple[StageRecord, dict[Choices | None, Record]]] = {}
        """Cached stages and their blocks, by the choices of the stage."""
        self._relative = any(choice.of for choice in block.choices.values())
        """True if a choice of a block is a ratio to a choice of its stage."""

    # architectures

    def read(self, arch: Arch) -> Any:
        """The typed choices of an architecture.

        Raises:
            ArchError: It is not of this family; the message begins with the path of the error.
        """
        if arch.typed is not None and arch.typed[0] is self:
            return arch.typed[1]
        if arch.family != self.family:
            raise ArchError(f'{self.who} runs architectures of {self.family}, but got {arch.family}')
        if self.num_stages is not None and len(arch.stages) != self.num_stages:
            raise ArchError(f'stages has {len(arch.stages)} entries; {self.who} has {self.num_stages}')
        try:
            own = read_record(self.network, arch.choices, self.who)
        except ArchError as err:
            raise ArchError(str(err).removeprefix('.')) from None
        stages = tuple([self._read_stage(arch, s, stage) for s, stage in enumerate(arch.stages)])
        network = with_field(own, 'stages', stages)
        self.check(network)
        object.__setattr__(arch, 'typed', (self, network))
        return network

    def check(self, network: Any) -> None:
        """Reject stages that do not fit together.

        Raises:
            ArchError: Stages do not fit; the message names the path of the error.
        """

    def stage_type(self, stages: int, s: int, choices: Choices | ChoiceSpace) -> Any:
        """The record of a stage; a family with several kinds of stages overrides this.

        Args:
            stages: Number of stages.
            s: Index of the stage.
            choices: Choices of the stage.
        """
        return self.stage

    def check_count(self, kind: Any, stage: Stage) -> None:
        """Reject a number of blocks that a stage cannot have.

        Raises:
            ArchError: The number is invalid; the message continues the path of the stage.
        """
        if not self.empty and not any(stage.blocks):
            raise ArchError(f'.blocks is empty; a stage of {self.who} has at least one block')

    def _read_stage(self, arch: Arch, s: int, stage: Stage) -> StageRecord:
        try:
            kind = self.stage_type(len(arch.stages), s, stage.choices)
            found = self._known.get((kind, stage.choices))
            if found is None:
                found = self._known[kind, stage.choices] = read_record(kind, stage.choices, self.who), {}
            self.check_count(kind, stage)
        except ArchError as err:
            raise ArchError(f'stages[{s}]{err}') from None
        # Nearly all blocks are cached, so that this is one look-up each.
        own, known = found
        blocks = tuple(map(known.get, stage.blocks))
        if None in blocks:
            blocks = tuple(
                read or self._read_block(s, b, block, stage.choices, known)
                for b, (read, block) in enumerate(zip(blocks, stage.blocks))
            )
        return with_blocks(own, blocks)

    def _read_block(
        self, s: int, b: int, block: Choices | None, stage: Choices, known: dict[Choices | None, Record]
    ) -> Record | None:
        if block is None:
            if self.absent == 'last':
                raise ArchError(f'stages[{s}].blocks[{b}] is absent; {self.who} leaves out only the last blocks')
            return None
        try:
            read = read_record(self.block, block, self.who, stage if self._relative else None)
        except ArchError as err:
            raise ArchError(f'stages[{s}].blocks[{b}]{err}') from None
        if len(known) >= _MOST_KNOWN:
            known.clear()
        known[block] = read
        return read

    # spaces

    def check_space(self, space: SearchSpace) -> None:
        """Check that a space is of this family and that its largest options size the weights.

        Raises:
            SpaceError: It is not; the message begins with the path of the error.
            ArchError: Its only architecture is not of this family.
        """
        wrong = self.num_stages not in (None, len(space.stages))
        if wrong or (self.absent == 'last' and any(stage.optional or None in stage.blocks for stage in space.stages)):
            shape = 'one stage' if self.num_stages == 1 else 'stages'
            shape += ' in which only the last blocks are absent' if self.absent == 'last' else ''
            raise SpaceError(f'a space of {self.who} should have {shape}, but got {len(space.stages)} stages')
        try:
            for arch in (space.smallest(), space.largest()):
                self.read(arch)
        except ArchError as err:
            raise err if space.size() == 1 else SpaceError(str(err)) from None
        self._check_options('', self.network, space.choices)
        checked = set()
        for s, stage in enumerate(space.stages):
            self._check_options(f'stages[{s}].', self.stage_type(len(space.stages), s, stage.choices), stage.choices)
            narrow = Choices({name: options[0] for name, options in stage.choices.options})
            for b, block in enumerate(stage.blocks):
                if block is not None and (block, narrow) not in checked:
                    checked.add((block, narrow))
                    self._check_options(f'stages[{s}].blocks[{b}].', self.block, block, narrow)

    def typed(self, space: SearchSpace) -> SearchSpace:
        """Return the space with whole numbers as integers; a file may write 192.0."""
        stages = []
        for s, stage in enumerate(space.stages):
            kind = self.stage_type(len(space.stages), s, stage.choices)
            blocks = tuple(None if block is None else _typed(self.block, block) for block in stage.blocks)
            stages.append(replace(stage, choices=_typed(kind, stage.choices), blocks=blocks))
        return replace(space, stages=tuple(stages), choices=_typed(self.network, space.choices))

    def _check_options(self, path: str, record: Any, grammar: ChoiceSpace, stage: Choices | None = None) -> None:
        """Check the options of each choice, and all their combinations."""
        declared = record.choices
        for name, options in grammar.options:
            choice, what = declared[name], f'{path}{name} of the {self.who} space'
            numbers = [option for option in options if not isinstance(option, str)]
            if choice.ascending and list(options) != sorted(numbers):
                raise SpaceError(f'{what} should list numbers, smallest first, but got {list(options)}')
            if choice.weights == 'same' and len(options) > 1:
                raise SpaceError(f'{what} should have one option, but got {list(options)}')
        names = [name for name, _ in grammar.options]
        for values in product(*(options for _, options in grammar.options)):
            try:
                read_record(record, Choices(zip(names, values)), self.who, stage)
            except ArchError as err:
                raise SpaceError(f'{path[:-1]}{err}'.removeprefix('.')) from None


def _typed(record: Any, grammar: ChoiceSpace) -> ChoiceSpace:
    """Convert the options of choices to the types of a record."""
    declared = record.choices
    return ChoiceSpace(tuple((name, tuple(map(declared[name].typed, values))) for name, values in grammar.options))
