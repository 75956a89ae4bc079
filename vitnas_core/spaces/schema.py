"""``Schema``: the choices of a family, declared once as typed dataclasses.

From the declaration follow the reading of an architecture with the path of any error, the check of a search space, and
the check that weights fit. A rule about two fields is a ``check`` method of the dataclass.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import cache, lru_cache
from itertools import product
from typing import Any, TypeVar

from ..errors import ArchError, SpaceError
from .arch import Arch, Choices, Stage, Value
from .grammar import ChoiceSpace
from .space import SearchSpace

_R = TypeVar('_R', bound='Record')

_MOST_KNOWN = 65536
"""How many different blocks of a stage are remembered."""


@dataclass(frozen=True)
class Choice:
    """What a field of a record may be, and what it means for the size of the weights.

    Args:
        kind: ``'whole'``: a whole number above 0; ``'ratio'``: hidden units over the width of the stage; ``'word'``: one
            of ``options``; ``'flag'``: 0 or 1.
        weights: ``'most'``: the largest option sizes the weights and the others use a part; ``'same'``: the weights hold
            for one value; ``'own'``: each option has weights of its own; ``'free'``: it means nothing for the weights.
        options: The words, or the only numbers that are valid.
        of: The choice of the stage that a ratio is taken of.
    """

    kind: str
    weights: str
    options: tuple[Value, ...] = ()
    of: str = ''

    def read(self, value: Value, width: int) -> Any:
        """The typed value.

        Raises:
            ArchError: It is not valid; the message goes on from the name of the choice.
        """
        if self.kind == 'flag' or self.options:
            options = self.options or (0, 1)
            if value not in options:
                words = ' or '.join(map(str, options)) if self.kind != 'word' else f'one of {", ".join(map(str, options))}'
                raise ArchError(f' should be {words}, but got {value!r}')
            return bool(value) if self.kind == 'flag' else value
        if self.kind == 'ratio':
            if isinstance(value, str) or value <= 0:
                raise ArchError(f' should be a number above 0, but got {value!r}')
            if units(width, value) < 1:
                raise ArchError(f' is {value}, which leaves no hidden unit of {width} channels')
            return float(value)
        if isinstance(value, str) or value < 1 or value != int(value):
            raise ArchError(f' should be a whole number above 0, but got {value!r}')
        return int(value)


def whole(weights: str = 'most', options: tuple[int, ...] = ()) -> Any:
    """Declare a whole number above 0; see :class:`Choice`."""
    return field(metadata={'choice': Choice('whole', weights, options)})


def ratio(of: str) -> Any:
    """Declare a ratio of a width of the stage; see :class:`Choice`."""
    return field(metadata={'choice': Choice('ratio', 'most', of=of)})


def word(*options: str) -> Any:
    """Declare one of several words, each with weights of its own; see :class:`Choice`."""
    return field(metadata={'choice': Choice('word', 'own', options)})


def flag() -> Any:
    """Declare a yes or no that the weights hold for; see :class:`Choice`."""
    return field(metadata={'choice': Choice('flag', 'same')})


def parts() -> Any:
    """Declare what a record holds: the blocks of a stage, the stages of a network."""
    return field(default=(), kw_only=True)


def units(width: int, ratio: float) -> int:
    """Hidden units of a ratio."""
    return int(width * ratio)


@dataclass(frozen=True, eq=False)
class Record:
    """The typed choices of a network, a stage or a block.

    Records are made by :class:`Schema` alone, once for equal choices, so that they compare and hash by identity.
    """

    def check(self) -> None:
        """Refuse choices that do not go together.

        Raises:
            ArchError: The message goes on from the path of the record.
        """


@dataclass(frozen=True, eq=False)
class StageRecord(Record):
    """The typed choices of a stage and of its blocks; None for an absent block."""

    blocks: tuple[Any, ...] = parts()


@dataclass(frozen=True, eq=False)
class NetworkRecord(Record):
    """The typed choices of a network and of its stages."""

    stages: tuple[Any, ...] = parts()


@cache
def choices_of(record: type[Record]) -> dict[str, Choice]:
    """The declared choices of a record, by name."""
    return {f.name: f.metadata['choice'] for f in fields(record) if 'choice' in f.metadata}


@lru_cache(maxsize=65536)
def _read(record: type[_R], choices: Choices, who: str, stage: Choices | None = None) -> _R:
    """A record without its parts; errors go on from its path.

    Remembered, as architectures have few different blocks: equal choices give the same object.
    """
    declared = choices_of(record)
    offered = ', '.join(declared) or 'no choice'
    for name in choices:
        if name not in declared:
            raise ArchError(f'.{name} is unknown; {who} has {offered} here')
    values = {}
    for name, choice in declared.items():
        if name not in choices:
            raise ArchError(f'.{name} is missing; {who} has {offered} here')
        try:
            values[name] = choice.read(choices[name], int(stage[choice.of]) if choice.of and stage else 0)
        except ArchError as err:
            raise ArchError(f'.{name}{err}') from None
    made = record(**values)
    made.check()
    return made


class Schema:
    """The choices of a family.

    Args:
        family: What ``family`` says in the files of its architectures.
        who: What errors call it: the name of its backbone.
        network: The record of a network.
        stage: The record of a stage.
        block: The record of a block.
        num_stages: How many stages there are. Defaults to None: any number.
        absent: Which blocks may be absent: the ``'last'`` ones or ``'any'``. Defaults to ``'last'``.
        empty: Whether a stage may be without blocks. Defaults to False.
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
        self.network, self.stage, self.block = network, stage, block
        self.absent, self.empty = absent, empty
        self._known: dict[Choices, dict[Choices | None, Record]] = {}
        """The blocks that were read, by the choices of their stage."""

    # architectures

    def read(self, arch: Arch) -> Any:
        """The typed choices of an architecture.

        Raises:
            ArchError: It is not of this family; the message begins with the path of what is wrong.
        """
        if arch.family != self.family:
            raise ArchError(f'{self.who} runs architectures of {self.family}, but got {arch.family}')
        if self.num_stages is not None and len(arch.stages) != self.num_stages:
            raise ArchError(f'stages has {len(arch.stages)} entries; {self.who} has {self.num_stages}')
        try:
            own = _read(self.network, arch.choices, self.who)
        except ArchError as err:
            raise ArchError(str(err).removeprefix('.')) from None
        network = _with(own, stages=tuple(self._read_stage(arch, s, stage) for s, stage in enumerate(arch.stages)))
        self.check(network)
        return network

    def check(self, network: Any) -> None:
        """Refuse stages that do not go together.

        Raises:
            ArchError: With the path of what is wrong.
        """

    def stage_type(self, stages: int, s: int, choices: Choices | ChoiceSpace) -> type[StageRecord]:
        """The record of a stage, where kinds of stages differ.

        Args:
            stages: How many stages there are.
            s: Number of the stage.
            choices: What it chooses.
        """
        return self.stage

    def check_count(self, kind: type[StageRecord], stage: Stage) -> None:
        """Refuse a number of blocks that a stage cannot have.

        Raises:
            ArchError: The message goes on from the path of the stage.
        """
        if not self.empty and not any(stage.blocks):
            raise ArchError(f'.blocks is empty; a stage of {self.who} has at least one block')

    def _read_stage(self, arch: Arch, s: int, stage: Stage) -> StageRecord:
        try:
            kind = self.stage_type(len(arch.stages), s, stage.choices)
            own = _read(kind, stage.choices, self.who)
            self.check_count(kind, stage)
        except ArchError as err:
            raise ArchError(f'stages[{s}]{err}') from None
        # Nearly all blocks were met before, so that this is one look-up each.
        known = self._known.setdefault(stage.choices, {})
        blocks = tuple(map(known.get, stage.blocks))
        if None in blocks:
            blocks = tuple(
                read or self._read_block(s, b, block, stage.choices)
                for b, (read, block) in enumerate(zip(blocks, stage.blocks))
            )
        return _with_blocks(own, blocks)

    def _read_block(self, s: int, b: int, block: Choices | None, stage: Choices) -> Record | None:
        if block is None:
            if self.absent == 'last':
                raise ArchError(f'stages[{s}].blocks[{b}] is absent; {self.who} leaves out only last blocks')
            return None
        try:
            read = _read(self.block, block, self.who, stage)
        except ArchError as err:
            raise ArchError(f'stages[{s}].blocks[{b}]{err}') from None
        if len(self._known[stage]) >= _MOST_KNOWN:
            self._known[stage].clear()
        self._known[stage][block] = read
        return read

    # spaces

    def check_space(self, space: SearchSpace) -> None:
        """Check that a space is of this family and that its largest options size the weights.

        Raises:
            SpaceError: It is not; the message begins with the path of what is wrong.
            ArchError: One of its architectures is not of this family.
        """
        wrong = self.num_stages not in (None, len(space.stages))
        if wrong or (self.absent == 'last' and any(stage.optional or None in stage.blocks for stage in space.stages)):
            shape = 'one stage' if self.num_stages == 1 else 'stages'
            shape += ' in which only last blocks are absent' if self.absent == 'last' else ''
            raise SpaceError(f'a space of {self.who} should have {shape}, but got {len(space.stages)} stages')
        self.read(space.smallest())
        self.read(space.largest())
        self._check_options('', self.network, space.choices)
        checked = set()
        for s, stage in enumerate(space.stages):
            self._check_options(f'stages[{s}].', self.stage_type(len(space.stages), s, stage.choices), stage.choices)
            narrow = Choices({name: options[0] for name, options in stage.choices.options})
            for b, block in enumerate(stage.blocks):
                if block is not None and (block, narrow) not in checked:
                    checked.add((block, narrow))
                    self._check_options(f'stages[{s}].blocks[{b}].', self.block, block, narrow)

    def _check_options(self, path: str, record: type[Record], grammar: ChoiceSpace, stage: Choices | None = None) -> None:
        """Check the options of each choice, and that all of them go together."""
        declared = choices_of(record)
        for name, options in grammar.options:
            weights, what = declared[name].weights, f'{path}{name} of the {self.who} space'
            numbers = [option for option in options if not isinstance(option, str)]
            if weights == 'most' and list(options) != sorted(numbers):
                raise SpaceError(f'{what} should list numbers, smallest first, but got {list(options)}')
            if weights == 'same' and len(options) > 1:
                raise SpaceError(f'{what} should have one option, but got {list(options)}')
        names = [name for name, _ in grammar.options]
        for values in product(*(options for _, options in grammar.options)):
            try:
                _read(record, Choices(zip(names, values)), self.who, stage)
            except ArchError as err:
                raise SpaceError(f'{path[:-1]}{err}'.removeprefix('.')) from None

    # weights

    def limits(self, space: SearchSpace, **stored: int) -> Limits:
        """What the weights of a space's largest architecture can run.

        Args:
            space: The space.
            **stored: Choices of every stage for which the weights are larger than the space asks.
        """
        most, stages = self.read(space.largest()), []
        for grammar, largest in zip(space.stages, most.stages):
            stage = _with(largest, **stored)
            places = stage.blocks + (None,) * (len(grammar.blocks) - len(stage.blocks))
            blocks = tuple(
                None if block is None or own is None else Limits.of(block, own, stage)
                for block, own in zip(places, grammar.blocks)
            )
            stages.append(Limits.of(stage, grammar.choices, None, blocks))
        return Limits.of(most, space.choices, None, tuple(stages))

    def check_fits(self, network: Any, limits: Limits) -> None:
        """Check that weights can run an architecture.

        Raises:
            ArchError: They cannot; the message begins with the path of what is wrong.
        """
        limits.check('', network)
        if len(network.stages) != len(limits.parts):
            raise ArchError(f'stages has {len(network.stages)} entries; the weights have {len(limits.parts)} stages')
        for s, (stage, own) in enumerate(zip(network.stages, limits.parts)):
            assert own is not None
            own.check(f'stages[{s}]', stage)
            if len(stage.blocks) > len(own.parts):
                raise ArchError(
                    f'stages[{s}].blocks has {len(stage.blocks)} entries; the weights have {len(own.parts)} blocks'
                )
            for b, (block, limit) in enumerate(zip(stage.blocks, own.parts)):
                if block is None:
                    continue
                if limit is None:
                    raise ArchError(f'stages[{s}].blocks[{b}] is there; the weights have no such block')
                if limit.misfit(block, stage):
                    limit.check(f'stages[{s}].blocks[{b}]', block, stage)


@dataclass(frozen=True)
class Limits:
    """What the weights of a network, a stage or a block can run.

    Args:
        record: Its record.
        rules: (name, rule, bound) of each choice: what :class:`Choice` says of the weights, and the largest value, the
            only one, or all that there are; the rule of a ratio is the choice that it is taken of.
        parts: The limits of what it holds; None where there are no weights.
    """

    record: type[Record]
    rules: tuple[tuple[str, str, Any], ...]
    parts: tuple[Limits | None, ...] = ()

    @classmethod
    def of(
        cls, largest: Record, grammar: ChoiceSpace, stage: Record | None, parts: tuple[Limits | None, ...] = ()
    ) -> Limits:
        """The limits of weights that were made for the largest options."""
        rules, offered = [], dict(grammar.options)
        for name, choice in choices_of(type(largest)).items():
            value = getattr(largest, name)
            if choice.of:
                rules.append((name, choice.of, units(getattr(stage, choice.of), value)))
            elif choice.weights == 'own':
                rules.append((name, 'own', tuple(choice.read(option, 0) for option in offered[name])))
            elif choice.weights != 'free':
                rules.append((name, choice.weights, value))
        return cls(type(largest), tuple(rules), parts)

    def misfit(self, record: Record, stage: Record | None = None) -> str:
        """The name of the first choice that does not fit; '' if all do, '.' if the record is of another kind."""
        if type(record) is not self.record:
            return '.'
        for name, rule, bound in self.rules:
            value = getattr(record, name)
            if rule == 'most':
                fits = value <= bound
            elif rule == 'own':
                fits = value in bound
            elif rule == 'same':
                fits = value == bound
            else:
                fits = units(getattr(stage, rule), value) <= bound
            if not fits:
                return name
        return ''

    def check(self, path: str, record: Record, stage: Record | None = None) -> None:
        """Check that the weights can run a record.

        Raises:
            ArchError: They cannot; the message begins with ``path``.
        """
        name = self.misfit(record, stage)
        if name == '.':
            have, there = (', '.join(choices_of(kind)) for kind in (self.record, type(record)))
            raise ArchError(f'{path} chooses {there}; the weights are for {have}')
        if name:
            rule, bound = next((rule, bound) for own, rule, bound in self.rules if own == name)
            value = getattr(record, name)
            if rule == 'own':
                raise ArchError(f'{path}.{name} is {value}; the weights have {", ".join(map(str, bound))} here'.lstrip('.'))
            hidden = '' if rule in ('most', 'same') else f', {units(getattr(stage, rule), value)} hidden units'
            shown = int(value) if isinstance(value, bool) else value
            raise ArchError(f'{path}.{name} is {shown}{hidden}; the weights have {bound:d}'.lstrip('.'))


@lru_cache(maxsize=4096)
def _with_blocks(own: StageRecord, blocks: tuple[Any, ...]) -> StageRecord:
    """A stage with its blocks; equal stages are mostly the same object, so that costs of stages can be remembered."""
    return _with(own, blocks=blocks)


def _with(record: _R, **parts: Any) -> _R:
    """A copy of a record with other fields; much faster than ``dataclasses.replace``."""
    made = object.__new__(type(record))
    made.__dict__.update(record.__dict__, **parts)
    return made

