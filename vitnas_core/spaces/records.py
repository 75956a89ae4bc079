"""Records: the choices of a family, declared as typed dataclasses, and their reader.

Each field declares its valid values and its effect on the size of the weights. A rule about two fields is a ``check``
method of the dataclass.
"""

from __future__ import annotations

from dataclasses import Field, dataclass, field
from functools import lru_cache
from typing import Any, ClassVar, TypeVar

from ..errors import ArchError
from .arch import Choices, Value

_R = TypeVar('_R', bound='Record')


@dataclass(frozen=True)
class Choice:
    """Valid values of a field of a record, and its effect on the size of the weights.

    Args:
        kind: ``'whole'``: a whole number above 0; ``'ratio'``: hidden units over the width of the stage; ``'word'``:
            one of ``options``; ``'flag'``: 0 or 1.
        weights: ``'most'``: the largest option sizes the weights and the others use a part; ``'same'``: the weights
            hold for one value; ``'own'``: each option has its own weights; ``'free'``: no effect.
        options: The valid words or numbers.
        of: The choice of the stage to which a ratio relates.
        ascending: Whether a larger number makes a larger network, so that a space lists the smallest first.
    """

    kind: str
    weights: str
    options: tuple[Value, ...] = ()
    of: str = ''
    ascending: bool = False

    def read(self, value: Value, width: int) -> Any:
        """Convert a value to its type.

        Raises:
            ArchError: The value is invalid; the message continues the name of the choice.
        """
        if self.kind == 'flag' or self.options:
            options = self.options or (0, 1)
            if value not in options:
                words = (
                    ' or '.join(map(str, options)) if self.kind != 'word' else f'one of {", ".join(map(str, options))}'
                )
                raise ArchError(f' should be {words}, but got {value!r}')
            return bool(value) if self.kind == 'flag' else self.typed(value)
        if self.kind == 'ratio':
            if isinstance(value, str) or value <= 0:
                raise ArchError(f' should be a number above 0, but got {value!r}')
            if units(width, value) < 1:
                raise ArchError(f' is {value}, which leaves no hidden unit of {width} channels')
            return float(value)
        if isinstance(value, str) or value < 1 or value != int(value):
            raise ArchError(f' should be a whole number above 0, but got {value!r}')
        return int(value)

    def typed(self, value: Value) -> Value:
        """Return a valid value in its type: a whole number may be written as 192.0."""
        return int(value) if self.kind == 'whole' else value


def whole(weights: str = 'most', options: tuple[int, ...] = (), ascending: bool = True) -> Any:
    """Declare a whole number above 0; see :class:`Choice`."""
    return field(metadata={'choice': Choice('whole', weights, options, ascending=ascending)})


def ratio(of: str) -> Any:
    """Declare a ratio to a width of the stage; see :class:`Choice`."""
    return field(metadata={'choice': Choice('ratio', 'most', of=of, ascending=True)})


def word(*options: str) -> Any:
    """Declare one of several words, each with its own weights; see :class:`Choice`."""
    return field(metadata={'choice': Choice('word', 'own', options)})


def flag() -> Any:
    """Declare a flag; the weights hold for one of its values; see :class:`Choice`."""
    return field(metadata={'choice': Choice('flag', 'same')})


def parts() -> Any:
    """Declare the parts of a record: the blocks of a stage, the stages of a network."""
    return field(default=(), kw_only=True)


def units(width: int, ratio: float) -> int:
    """Hidden units of a ratio."""
    return int(width * ratio)


def _metadata(value: Any) -> Any:
    return value.metadata if isinstance(value, Field) else {}


@dataclass(frozen=True, eq=False)
class Record:
    """The typed choices of a network, a stage or a block.

    Only a schema makes records, one for equal choices, so that they compare and hash by identity.
    """

    choices: ClassVar[dict[str, Choice]] = {}
    """The declared choices, by name."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Collect the declared choices, those of base classes first.

        Raises:
            TypeError: The class has a ``__post_init__``, which would never run.
        """
        super().__init_subclass__(**kwargs)
        if '__post_init__' in vars(cls):
            raise TypeError(f'{cls.__name__} should have `check` or properties; a record runs no `__post_init__`')
        own = {name: value.metadata['choice'] for name, value in vars(cls).items() if 'choice' in _metadata(value)}
        cls.choices = {**cls.choices, **own}

    def check(self) -> None:
        """Reject choices that do not fit together.

        Raises:
            ArchError: Choices do not fit; the message continues the path of the record.
        """


@dataclass(frozen=True, eq=False)
class StageRecord(Record):
    """The typed choices of a stage and of its blocks; None for an absent block."""

    blocks: tuple[Any, ...] = parts()


@dataclass(frozen=True, eq=False)
class NetworkRecord(Record):
    """The typed choices of a network and of its stages."""

    stages: tuple[Any, ...] = parts()


@lru_cache(maxsize=65536)
def read_record(record: Any, choices: Choices, who: str, stage: Choices | None = None) -> Any:
    """Read a record without its parts; error messages continue its path.

    Cached, since architectures have few different blocks: equal choices give the same object.
    """
    declared = record.choices
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
    made = object.__new__(record)
    made.__dict__.update(values)  # much faster than the constructor of a frozen dataclass
    made.check()
    return made


@lru_cache(maxsize=4096)
def with_blocks(own: StageRecord, blocks: tuple[Any, ...]) -> StageRecord:
    """Add blocks to a stage; equal stages are mostly the same object, so that the costs of stages can be cached."""
    return with_field(own, 'blocks', blocks)


def with_field(record: _R, name: str, value: Any) -> _R:
    """Copy a record with another value of a field; much faster than ``dataclasses.replace``."""
    made = object.__new__(type(record))
    fields = made.__dict__
    fields.update(record.__dict__)
    fields[name] = value
    return made
