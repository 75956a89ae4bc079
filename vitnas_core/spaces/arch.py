"""``Arch``: an architecture as plain, immutable data: globals, stages, blocks."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from ..errors import ArchError

Value = int | float | str
"""Value of a choice: a number or a word."""


class Choices(Mapping[str, Value]):
    """The settings of one block, stage or network: an immutable, hashable mapping.

    Two are equal if they hold the same names and values, in any order; 4 equals 4.0.

    Args:
        values: Names and values, e.g. ``dict(num_heads=3, mlp_ratio=3.5)``.

    Raises:
        ArchError: A value is neither a finite number nor a word.
    """

    __slots__ = ('_hash', '_values')

    def __init__(self, values: Mapping[str, Value] | Iterable[tuple[str, Value]] = ()) -> None:
        self._values: dict[str, Value] = {
            name: value.item() if isinstance(value, np.generic) else value for name, value in dict(values).items()
        }
        for name, value in self._values.items():
            if type(value) not in (int, float, str) or (type(value) is float and not math.isfinite(value)):
                raise ArchError(f'{name} should be a number or a word, but got {value!r}')
        self._hash = hash(frozenset(self._values.items()))

    def __getitem__(self, name: str) -> Value:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self._values == other._values if isinstance(other, Choices) else NotImplemented

    def __reduce__(self) -> tuple[type[Choices], tuple[dict[str, Value]]]:
        # Rebuilt on unpickling: the hash of a word differs between processes.
        return Choices, (self._values,)

    def __repr__(self) -> str:
        return f'Choices({self._values})'


@dataclass(frozen=True)
class Stage:
    """A run of blocks and the choices of the stage.

    Args:
        choices: The stage's own choices, e.g. ``embed_dim``.
        blocks: One entry per block; None for an absent one. Trailing absent blocks are dropped, so
            that equal networks are equal data.
    """

    choices: Choices = Choices()
    blocks: tuple[Choices | None, ...] = ()

    def __post_init__(self) -> None:
        blocks = tuple(self.blocks)
        while blocks and blocks[-1] is None:
            blocks = blocks[:-1]
        object.__setattr__(self, 'blocks', blocks)

    def __getitem__(self, name: str) -> Value:
        return self.choices[name]

    @property
    def depth(self) -> int:
        """Number of present blocks."""
        return sum(block is not None for block in self.blocks)


@dataclass(frozen=True)
class Arch:
    """An architecture: immutable, hashable, compares by value, round-trips through JSON.

    Args:
        family: Family of the backbone, e.g. ``'autoformer'``.
        stages: The stages, first to last.
        choices: Choices of the whole network, e.g. ``resolution``.
    """

    family: str
    stages: tuple[Stage, ...]
    choices: Choices = field(default_factory=Choices)
    typed: ClassVar[tuple[Any, Any] | None] = None
    """The schema that has read it and the typed choices, set by :meth:`Schema.read`: a search reads it many times."""

    def __post_init__(self) -> None:
        object.__setattr__(self, 'stages', tuple(self.stages))

    def __getstate__(self) -> dict[str, Any]:
        # Typed choices compare by identity, so they stay in their process.
        return {name: value for name, value in self.__dict__.items() if name != 'typed'}

    def __getitem__(self, name: str) -> Value:
        return self.choices[name]

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Arch:
        """Read the JSON form; ``name`` and ``source`` are notes.

        Raises:
            ArchError: Something is malformed; the message names its path.
        """
        _expect(data, Mapping, 'the architecture', 'an object')
        family = data.get('family')
        if not isinstance(family, str):
            raise ArchError(f'family should be a word such as "autoformer", but got {family!r}')
        _expect(data.get('stages'), (list, tuple), 'stages', 'a list')
        stages = tuple(_read_stage(stage, f'stages[{i}]') for i, stage in enumerate(data['stages']))
        return cls(family, stages, _read_choices(data, '', skip=('family', 'name', 'source', 'stages')))

    def to_dict(self) -> dict[str, Any]:
        """The JSON form: ``{"family": …, <globals>, "stages": [{<choices>, "blocks": [{…}, null, …]}]}``."""
        stages = [
            {**stage.choices, 'blocks': [None if block is None else dict(block) for block in stage.blocks]}
            for stage in self.stages
        ]
        return {'family': self.family, **self.choices, 'stages': stages}

    @classmethod
    def from_json(cls, text: str) -> Arch:
        """Read JSON text.

        Raises:
            ArchError: The text is not JSON, or not an architecture.
        """
        try:
            data = json.loads(text)
        except json.JSONDecodeError as err:
            raise ArchError(f'not a JSON file: {err}') from None
        return cls.from_dict(data)

    def to_json(self) -> str:
        """JSON text, one line."""
        return json.dumps(self.to_dict())

    def digest(self) -> str:
        """Hash of the architecture, the same in every process and for equal values (4 and 4.0)."""
        text = json.dumps(_canonical(self.to_dict()), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def _canonical(data: Any) -> Any:
    if isinstance(data, dict):
        return {name: _canonical(value) for name, value in data.items()}
    if isinstance(data, list):
        return [_canonical(value) for value in data]
    return int(data) if isinstance(data, float) and data.is_integer() else data


def _expect(data: Any, kind: type | tuple[type, ...], path: str, what: str) -> None:
    if not isinstance(data, kind):
        raise ArchError(f'{path} should be {what}, but got {data!r}')


def _read_choices(data: Mapping[str, Any], path: str, skip: tuple[str, ...] = ()) -> Choices:
    try:
        return Choices({name: value for name, value in data.items() if name not in skip})
    except ArchError as err:
        raise ArchError(f'{path}.{err}' if path else str(err)) from None


def _read_stage(data: Any, path: str) -> Stage:
    _expect(data, Mapping, path, 'an object')
    blocks = data.get('blocks', [])
    _expect(blocks, (list, tuple), f'{path}.blocks', 'a list')
    read: list[Choices | None] = []
    for i, block in enumerate(blocks):
        if block is not None:
            _expect(block, Mapping, f'{path}.blocks[{i}]', 'an object or null')
        read.append(None if block is None else _read_choices(block, f'{path}.blocks[{i}]'))
    return Stage(_read_choices(data, path, skip=('blocks',)), tuple(read))
