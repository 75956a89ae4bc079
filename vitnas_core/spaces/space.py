"""``SearchSpace``: draw, change, combine, count, encode and check the architectures of a grammar."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..errors import ArchError, SpaceError
from . import evolving, indexing
from .arch import Arch, Choices, Stage, Value
from .grammar import ChoiceSpace, Options, StageSpace

ABSENT = -1
"""Entry of :meth:`SearchSpace.encode` for the choices of absent blocks."""


@dataclass(frozen=True)
class Dimension:
    """One entry of an encoded architecture.

    Args:
        path: Path of the choice in the architecture, e.g. ``stages[0].blocks[3].num_heads``.
            ``stages[0].depth`` is a number of blocks, ``stages[0].blocks[3]`` the presence of one.
        kind: ``'global'``, ``'stage'``, ``'depth'`` (also the presence of an optional block) or ``'block'``.
        options: Its values, smallest network first.
        needs: (entry, least index) pairs. The choice exists only if these entries have at least these indices.
            Defaults to (): it always exists.
    """

    path: str
    kind: str
    options: Options
    needs: tuple[tuple[int, int], ...] = ()

    @property
    def name(self) -> str:
        """Name of the choice without its path: ``num_heads``, ``depth``; ``blocks`` for the presence of one."""
        return self.path.rpartition('.')[2].partition('[')[0]


@dataclass(frozen=True)
class _StageLayout:
    """Positions of a stage's entries in the encoding."""

    choices: slice
    depth: int
    presence: Mapping[int, int]
    blocks: tuple[slice, ...]
    absent: tuple[tuple[int, ...], ...]
    """Encoding of each block if it is absent."""


@dataclass(frozen=True)
class SearchSpace:
    """A search space: globals → stages → blocks.

    An architecture is encoded as a vector of option indices of fixed length; sampling, mutation and
    crossover work on that vector, so they cannot leave the space.

    Args:
        family: Family of the backbone, e.g. ``'autoformer'``.
        stages: The stages' grammars.
        choices: Choices of the whole network, e.g. ``resolution``.
        name: Name in errors and reports. Defaults to ''.
    """

    family: str
    stages: tuple[StageSpace, ...]
    choices: ChoiceSpace = ChoiceSpace()
    name: str = ''

    # reading and writing

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> SearchSpace:
        """Read the JSON form, e.g. ``{"family": "autoformer", "stages": [{"embed_dim": [192, 216, 240],
        "depth": [12, 13, 14], "block": {"num_heads": [3, 4], "mlp_ratio": [3.5, 4.0]}}]}``.

        Raises:
            SpaceError: Something is malformed; the message names its path.
        """
        if not isinstance(data, Mapping) or not isinstance(data.get('family'), str):
            raise SpaceError(f'a space should be an object with a family, but got {data!r}')
        stages = data.get('stages')
        if not isinstance(stages, (list, tuple)) or not stages:
            raise SpaceError(f'stages should be a list of at least one, but got {stages!r}')
        own = {k: v for k, v in data.items() if k not in ('family', 'name', 'stages', 'source')}
        grammar = tuple(StageSpace.read(stage, f'stages[{i}]') for i, stage in enumerate(stages))
        return cls(data['family'], grammar, ChoiceSpace.read(own, ''), str(data.get('name', '')))

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        name = {'name': self.name} if self.name else {}
        return {
            'family': self.family,
            **name,
            **self.choices.to_dict(),
            'stages': [stage.to_dict() for stage in self.stages],
        }

    @classmethod
    def from_json(cls, text: str) -> SearchSpace:
        """Read JSON text.

        Raises:
            SpaceError: The text is not JSON, or not a space.
        """
        try:
            return cls.from_dict(json.loads(text))
        except json.JSONDecodeError as err:
            raise SpaceError(f'not a JSON file: {err}') from None

    def to_json(self) -> str:
        """JSON text, indented for readers."""
        return json.dumps(self.to_dict(), indent=1)

    @classmethod
    def of(cls, arch: Arch, name: str = '') -> SearchSpace:
        """The space that holds only one architecture, which describes a fixed network."""

        def single(choices: Choices) -> ChoiceSpace:
            return ChoiceSpace(tuple((k, (v,)) for k, v in choices.items()))

        stages = tuple(
            StageSpace(
                single(stage.choices),
                tuple(None if block is None else single(block) for block in stage.blocks),
                (len(stage.blocks),),
            )
            for stage in arch.stages
        )
        return cls(arch.family, stages, single(arch.choices), name)

    def fix(self, arch: Arch) -> SearchSpace:
        """The space that holds only one architecture of this space.

        Raises:
            ArchError: The architecture is not in this space.
        """
        self.validate(arch)
        return self.of(arch, self.name)

    # the encoding

    @cached_property
    def _layout(self) -> tuple[tuple[Dimension, ...], tuple[_StageLayout, ...]]:
        dims: list[Dimension] = []

        def add(space: ChoiceSpace, path: str, kind: str, needs: tuple[tuple[int, int], ...] = ()) -> slice:
            start = len(dims)
            dims.extend(Dimension(f'{path}{name}', kind, options, needs) for name, options in space.options)
            return slice(start, len(dims))

        add(self.choices, '', 'global')
        layouts = []
        for s, stage in enumerate(self.stages):
            choices = add(stage.choices, f'stages[{s}].', 'stage')
            depth = len(dims)
            dims.append(Dimension(f'stages[{s}].depth', 'depth', stage.depths))
            presence = {}
            for b in stage.optional:
                presence[b] = len(dims)
                dims.append(Dimension(f'stages[{s}].blocks[{b}]', 'depth', (0, 1)))
            blocks = tuple(
                add(block or ChoiceSpace(), f'stages[{s}].blocks[{b}].', 'block', _needs(stage, b, depth, presence))
                for b, block in enumerate(stage.blocks)
            )
            absent = tuple((ABSENT,) * (where.stop - where.start) for where in blocks)
            layouts.append(_StageLayout(choices, depth, presence, blocks, absent))
        return tuple(dims), tuple(layouts)

    @property
    def dimensions(self) -> tuple[Dimension, ...]:
        """The dimension of each entry of an encoded architecture."""
        return self._layout[0]

    @cached_property
    def _sizes(self) -> np.ndarray:
        return np.array([len(dim.options) for dim in self.dimensions], dtype=np.int64)

    @cached_property
    def _names(self) -> tuple[str, ...]:
        return tuple(dim.path.rpartition('.')[2] for dim in self.dimensions)

    def encode(self, arch: Arch) -> np.ndarray:
        """Encode an architecture: the index of each choice among its options, in the order of :attr:`dimensions`.

        Returns:
            int64 of shape (len(dimensions),); -1 for the choices of absent blocks.

        Raises:
            ArchError: The architecture is not in this space.
        """
        self._check_shape(arch)
        code: list[int] = list(self._code_of(0, arch.choices, self.choices))
        for s, (stage, space, layout) in enumerate(zip(arch.stages, self.stages, self._layout[1])):
            code += self._code_of(layout.choices.start, stage.choices, space.choices, s)
            code.append(space.depths.index(len(stage.blocks)) if len(space.depths) > 1 else 0)
            blocks = stage.blocks + (None,) * (len(space.blocks) - len(stage.blocks))
            code += [int(blocks[position] is not None) for position in space.optional]
            for b, block in enumerate(blocks):
                if block is None:
                    code += layout.absent[b]
                else:
                    code += self._code_of(layout.blocks[b].start, block, space.blocks[b], s, b)
        return np.array(code, dtype=np.int64)

    def _code_of(
        self, start: int, choices: Choices, space: ChoiceSpace | None, stage: int = -1, block: int = -1
    ) -> tuple[int, ...]:
        """Indices of the choices from ``start`` of the encoding; checked once, then cached."""
        options = space.options if space is not None else ()
        code = self._code_cache.get((start, len(options), choices))
        if code is None:
            path = f'stages[{stage}].' * (stage >= 0) + f'blocks[{block}].' * (block >= 0)
            self._check_choices(choices, options, path)
            code = tuple(values.index(choices[name]) for name, values in options)
            self._code_cache[start, len(options), choices] = code
        return code

    @cached_property
    def _code_cache(self) -> dict[tuple[int, int, Choices], tuple[int, ...]]:
        return {}

    def decode(self, code: np.ndarray) -> Arch:
        """Decode an architecture; entries of absent blocks are not read.

        Raises:
            ArchError: The length is wrong, or a needed index is out of range.
        """
        indices = tuple(np.asarray(code).tolist())
        if len(indices) != len(self.dimensions):
            raise ArchError(f'an encoding of {self._called} has {len(self.dimensions)} entries, but got {len(indices)}')
        choices = self._choices_at(0, indices[: len(self.choices.options)])
        stages = []
        for space, layout in zip(self.stages, self._layout[1]):
            own = self._choices_at(layout.choices.start, indices[layout.choices])
            blocks: list[Choices | None] = []
            for b in range(int(self._option(layout.depth, indices[layout.depth]))):
                entry = layout.presence.get(b)
                if space.blocks[b] is None or (entry is not None and not self._option(entry, indices[entry])):
                    blocks.append(None)
                else:
                    where = layout.blocks[b]
                    blocks.append(self._choices_at(where.start, indices[where]))
            stages.append(Stage(own, tuple(blocks)))
        return Arch(self.family, tuple(stages), choices)

    def _option(self, entry: int, index: int) -> Value:
        dim = self.dimensions[entry]
        if not 0 <= index < len(dim.options):
            raise ArchError(f'{dim.path} has no option number {index} in {self._called}')
        return dim.options[index]

    def _choices_at(self, start: int, indices: tuple[int, ...]) -> Choices:
        """The choices from ``start`` of the encoding; made once, then cached."""
        cached = self._choices_cache.get((start, indices))
        if cached is None:
            entries = range(start, start + len(indices))
            cached = Choices({self._names[i]: self._option(i, index) for i, index in zip(entries, indices)})
            self._choices_cache[start, indices] = cached
        return cached

    @cached_property
    def _choices_cache(self) -> dict[tuple[int, tuple[int, ...]], Choices]:
        return {}

    # drawing and changing

    def sample(self, rng: np.random.Generator) -> Arch:
        """Draw each dimension uniformly and independently, as the papers do.

        Every depth is equally likely, so a shallow architecture is drawn more often than a deep one.
        """
        return self.decode(rng.integers(self._sizes))

    def sample_spread(self, count: int, rng: np.random.Generator) -> list[Arch]:
        """Draw several architectures, each like :meth:`sample`, but options without replacement.

        Each option of a dimension is drawn at most count / options times, rounded up, as in ViT-ResNAS's code.
        """
        codes = np.empty((count, len(self._sizes)), dtype=np.int64)
        for entry, size in enumerate(self._sizes.tolist()):
            codes[:, entry] = rng.permutation(np.arange(-(-count // size) * size) % size)[:count]
        return [self.decode(code) for code in codes]

    def largest(self) -> Arch:
        """The last option of every dimension, every block present."""
        return self.decode(self._sizes - 1)

    def smallest(self) -> Arch:
        """The first option of every dimension, no optional block."""
        return self.decode(np.zeros_like(self._sizes))

    def upper(self, opened: float) -> SearchSpace:
        """Keep only the largest options: of n options the last 1 + floor(opened · (n − 1)).

        A warm-up opens a space with it, from the largest architecture alone (0) to the whole space (1).
        ViT-ResNAS opens e / 30 at epoch e.

        Raises:
            SpaceError: ``opened`` is not from 0 to 1.
        """
        if not 0 <= opened <= 1:
            raise SpaceError(f'opened should be from 0 to 1, but got {opened!r}')
        stages = tuple(stage.upper(opened) for stage in self.stages)
        return SearchSpace(self.family, stages, self.choices.upper(opened), self.name)

    def evolve(self, shifts: Mapping[str, float]) -> SearchSpace:
        """Move the options of a space (S3, Eq. 8), and drop those that are no longer above zero.

        Args:
            shifts: Path of a dimension → number to add to all its options. Paths are e.g. ``stages[0].embed_dim``,
                ``stages[0].depth``, ``stages[0].block.num_heads``. Other dimensions stay.

        Raises:
            SpaceError: A dimension is unknown, offers words or has no option left, or the blocks of a stage offer
                different options.
        """
        return evolving.evolve(self, shifts)

    def mutate(self, arch: Arch, prob: float | Mapping[str, float], rng: np.random.Generator) -> Arch:
        """Redraw each dimension with a probability (a redraw may give the old value).

        Blocks that a greater depth adds are drawn at random.

        Args:
            arch: An architecture of this space.
            prob: One probability, or one per kind of :class:`Dimension`, e.g. AutoFormer's
                ``dict(depth=0.4, stage=0.4, block=0.2)``; other kinds stay.
            rng: Random generator.

        Raises:
            ArchError: The architecture is not in this space.
        """
        if isinstance(prob, Mapping):
            unknown = set(prob) - {'global', 'stage', 'depth', 'block'}
            if unknown:
                raise SpaceError(f'prob should have the keys global, stage, depth, block, but got {sorted(unknown)}')
            chance: Any = np.array([prob.get(dim.kind, 0.0) for dim in self.dimensions])
        else:
            chance = prob
        if not np.all((np.asarray(chance) >= 0) & (np.asarray(chance) <= 1)):
            raise SpaceError(f'prob should be from 0 to 1, but got {prob!r}')
        code, fresh = self.encode(arch), rng.integers(self._sizes)
        redraw = (rng.random(len(code)) < chance) | (code == ABSENT)
        return self.decode(np.where(redraw, fresh, code))

    def cross(self, a: Arch, b: Arch, rng: np.random.Generator) -> Arch:
        """Take each dimension from either parent; a block that one parent lacks comes from the other.

        Raises:
            ArchError: A parent is not in this space.
        """
        codes = np.stack([self.encode(a), self.encode(b)])
        coin = rng.integers(2, size=codes.shape[1])
        picked, other = np.where(coin, codes[::-1], codes)
        return self.decode(np.where(picked == ABSENT, other, picked))

    # counting

    def size(self) -> int:
        """The exact number of architectures, however large."""
        return self._size

    @cached_property
    def _size(self) -> int:
        return self.choices.size() * math.prod(stage.size() for stage in self.stages)

    def arch_at(self, index: int) -> Arch:
        """The architecture with a number from 0 to ``size() - 1``, in the order of :meth:`iterate`."""
        if not 0 <= index < self.size():
            raise SpaceError(f'index should be from 0 to {self.size() - 1}, but got {index}')
        return indexing.arch_at(self, index)

    def iterate(self) -> Iterator[Arch]:
        """Every architecture once (for small spaces)."""
        return (self.arch_at(index) for index in range(self.size()))

    # checking

    @property
    def _called(self) -> str:
        return f'the space {self.name}' if self.name else f'this {self.family} space'

    def __contains__(self, arch: Arch) -> bool:
        try:
            self.validate(arch)
        except ArchError:
            return False
        return True

    def validate(self, arch: Arch) -> None:
        """Check that an architecture is in this space.

        Raises:
            ArchError: It is not; the message begins with the path of the error.
        """
        self.encode(arch)

    def _check_shape(self, arch: Arch) -> None:
        """Check the family, the number of stages and the presence of blocks."""
        if arch.family != self.family:
            raise ArchError(f'family is {arch.family}; {self._called} is of {self.family}')
        if len(arch.stages) != len(self.stages):
            raise ArchError(f'stages has {len(arch.stages)} entries; {self._called} has {len(self.stages)}')
        for s, (stage, space) in enumerate(zip(arch.stages, self.stages)):
            count = len(stage.blocks)
            if len(space.depths) > 1 and count not in space.depths:
                raise ArchError(f'stages[{s}].blocks has {count} entries; {self._called} offers {_join(space.depths)}')
            if count > len(space.blocks):
                raise ArchError(
                    f'stages[{s}].blocks has {count} entries; {self._called} has at most {len(space.blocks)}'
                )
            # With several depths, only the last blocks may be missing.
            needed = count if len(space.depths) > 1 else len(space.blocks)
            for b in range(needed):
                if b < count and stage.blocks[b] is not None:
                    if space.blocks[b] is None:
                        raise ArchError(f'stages[{s}].blocks[{b}] is present; {self._called} never has it')
                elif space.blocks[b] is not None and b not in space.optional:
                    raise ArchError(f'stages[{s}].blocks[{b}] is absent; {self._called} always has it')

    def _check_choices(self, choices: Choices, options: tuple[tuple[str, Options], ...], path: str) -> None:
        for name, values in options:
            if name not in choices:
                raise ArchError(f'{path}{name} is missing; {self._called} offers {_join(values)}')
            if choices[name] not in values:
                raise ArchError(f'{path}{name} is {choices[name]}; {self._called} offers {_join(values)}')
        known = [name for name, _ in options]
        for name in choices:
            if name not in known:
                raise ArchError(f'{path}{name} is unknown; {self._called} has {_join(known) or "no choice"} here')


def _needs(stage: StageSpace, block: int, depth: int, presence: Mapping[int, int]) -> tuple[tuple[int, int], ...]:
    """Conditions for the choices of a block to exist; ``depth`` and ``presence`` are entries of the encoding."""
    least = next(i for i, count in enumerate(stage.depths) if count > block)
    return ((depth, least),) * (least > 0) + (((presence[block], 1),) if block in presence else ())


def _join(values: Any) -> str:
    return ', '.join(str(value) for value in values)
