"""How good a search space is, and where it should move: S3's E-T error and its tendency (S3, Sec. 2.3, Eq. 5 to 8)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..errors import VitnasError
from ..spaces import Arch, SearchSpace, StageDimension, Value, stage_dimensions
from ..spaces.evolving import DIGITS, moved_options
from ..utils import checks

TOP = 50
"""How many of the best architectures the top-tier error is the mean of, in the paper."""

ROUNDINGS: dict[str, Callable[[float], float]] = {'floor': math.floor, 'symmetric': math.trunc}
"""How w / τ becomes whole steps: Eq. 8's floor, under which the smallest downward slope is a step up, or
towards zero on both sides."""


@dataclass(frozen=True)
class Sample:
    """An architecture that was drawn from a space, and its error in percent."""

    arch: Arch
    error: float


@dataclass(frozen=True)
class SpaceQuality:
    """The E-T error of a set of architectures: the mean of its two parts.

    Args:
        expected: Mean error of all (Eq. 5).
        top: Mean error of the best ones.
        count: How many there were.
    """

    expected: float
    top: float
    count: int

    @property
    def et_error(self) -> float:
        """The mean of both parts."""
        return (self.expected + self.top) / 2

    @classmethod
    def of(cls, errors: Iterable[float], top: float = TOP) -> SpaceQuality:
        """The quality of architectures with these errors.

        Args:
            errors: One an architecture.
            top: How many of the best count as the top tier (all, where there are fewer), or below 1 which fraction.
                Defaults to 50.
        """
        ordered = np.sort(np.fromiter(errors, float))
        best = top if top >= 1 else max(1, round(top * len(ordered)))
        return cls(float(ordered.mean()), float(ordered[: int(best)].mean()), len(ordered))


@dataclass(frozen=True)
class Tendency:
    """Where one dimension should move.

    Args:
        dimension: The dimension.
        qualities: The E-T error of the architectures that have each choice; None for a choice that none has.
        slope: w of the line through them (Eq. 7), in percent of error a step; 0 where there are less than two points.
        wanted: How many steps Eq. 8 moves all choices.
        steps: How many they move: as many, or fewer where no choice would be left or the space would leave its limits.
        moved: The choices after that.
    """

    dimension: StageDimension
    qualities: tuple[SpaceQuality | None, ...]
    slope: float
    wanted: int
    steps: int
    moved: tuple[Value, ...]

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            'path': self.dimension.path,
            'choices': list(self.dimension.options),
            'et_errors': [None if q is None else q.et_error for q in self.qualities],
            'counts': [0 if q is None else q.count for q in self.qualities],
            'slope': self.slope,
            'wanted': self.wanted,
            'steps': self.steps,
            'moved': list(self.moved),
        }


@dataclass(frozen=True)
class SpaceStep:
    """One step of a space search: a space, what was drawn from it, and where it moved.

    Args:
        space: The space.
        samples: Architectures drawn from it, within the limits.
        tendencies: Where its dimensions moved; empty for the last space, which is searched. Defaults to ().
        top: As of :meth:`SpaceQuality.of`. Defaults to 50.
    """

    space: SearchSpace
    samples: tuple[Sample, ...]
    tendencies: tuple[Tendency, ...] = ()
    top: float = TOP

    @property
    def quality(self) -> SpaceQuality:
        """The E-T error of the space."""
        return SpaceQuality.of((sample.error for sample in self.samples), self.top)


def subspaces(dimension: StageDimension, samples: Sequence[Sample]) -> dict[Value, list[float]]:
    """The errors of the architectures that have each choice of a dimension.

    Blocks of a stage choose by themselves, so an architecture counts once for every block that has the choice.
    """
    found: dict[Value, list[float]] = {option: [] for option in dimension.options}
    for sample in samples:
        for value in dimension.values(sample.arch):
            if value not in found:
                offered = ', '.join(map(str, found))
                raise VitnasError(f'{dimension.path} offers {offered}, but a drawn architecture has {value}')
            found[value].append(sample.error)
    return found


@dataclass(frozen=True)
class SpaceEvolution:
    """How a space moves by the errors of architectures drawn from it (Alg. 1, lines 5 to 10).

    The paper does not say in which unit the choices enter the line of Eq. 7. By default it is the dimension's own
    step, so that w is what a step would gain, in percent of error, and one threshold serves all dimensions. With
    the choices as they are (``unit='choice'``) w of a dimension of hundreds of channels is so small that the floor
    moves it up by one step or not at all.

    Args:
        steps: γ: by how much a step moves a dimension, by its name, e.g. ``dict(depth=1, embed_dim=64)``. Dimensions
            that are not named stay.
        threshold: τ: the slope that moves a dimension by one step. Defaults to 0.4.
        rounding: ``'floor'`` as in Eq. 8, or ``'symmetric'``, which treats both directions alike. Defaults to
            ``'floor'``.
        unit: ``'step'`` or ``'choice'``. Defaults to ``'step'``.
        top: How many of the best architectures that have a choice are its top tier, or below 1 which fraction of them.
            A number favours choices that many architectures have, and a limit on costs makes large ones rare: draw
            many more than that, or give a fraction. Defaults to 50, as in the paper.

    Raises:
        VitnasError: An argument is none of the above.
    """

    steps: Mapping[str, float]
    threshold: float = 0.4
    rounding: str = 'floor'
    unit: str = 'step'
    top: float = TOP

    def __post_init__(self) -> None:
        for name, valid in (('rounding', tuple(ROUNDINGS)), ('unit', ('step', 'choice'))):
            checks.one_of(name, getattr(self, name), valid)
        if not _is_size(self.top) or (self.top > 1 and self.top != int(self.top)):
            raise VitnasError(
                f'`top` should be a whole number of at least 1 or a fraction below 1, but got {self.top!r}'
            )
        if not _is_size(self.threshold):
            raise VitnasError(f'`threshold` should be a number above 0, but got {self.threshold!r}')
        if not isinstance(self.steps, Mapping):
            raise VitnasError(f'`steps` should be a dict of numbers by dimension, but got {self.steps!r}')
        for name, step in self.steps.items():
            if not _is_size(step):
                raise VitnasError(f'`steps` should be numbers above 0, but got {step!r} for {name}')

    def check(self, space: SearchSpace) -> None:
        """Refuse steps that are not of this space.

        Raises:
            VitnasError: A step is of a dimension that the space lacks or that offers words, or cuts a block in two.
            SpaceError: The blocks of a stage offer different options.
        """
        dimensions = stage_dimensions(space)
        words = {d.name for d in dimensions if any(isinstance(option, str) for option in d.options)}
        named = {d.name for d in dimensions} - words
        for name, step in self.steps.items():
            if name not in named:
                raise VitnasError(f'`steps` has {name}, but what can move in this space is {", ".join(sorted(named))}')
            if name == 'depth' and step != int(step):
                raise VitnasError(f'`steps` should be whole for depth, but got {step!r}')

    def tendencies(self, space: SearchSpace, samples: Sequence[Sample]) -> tuple[Tendency, ...]:
        """Where each dimension of a space should move, those that have no step included.

        Raises:
            VitnasError: There is no sample.
        """
        if not samples:
            raise VitnasError('a space is judged by architectures drawn from it, but got none')
        return tuple(self._tendency(dimension, samples) for dimension in stage_dimensions(space))

    def _tendency(self, dimension: StageDimension, samples: Sequence[Sample]) -> Tendency:
        errors = subspaces(dimension, samples)
        qualities = tuple(SpaceQuality.of(found, self.top) if found else None for found in errors.values())
        step = self.steps.get(dimension.name)
        if step is None:
            return Tendency(dimension, qualities, 0.0, 0, 0, dimension.options)
        points = [(float(v), q.et_error) for v, q in zip(dimension.options, qualities) if q is not None]
        unit = step if self.unit == 'step' else 1.0
        slope = _slope([v / unit for v, _ in points], [error for _, error in points])
        # The last decimals of a slope are rounding: without this a flat dimension would move by them.
        wanted = -int(ROUNDINGS[self.rounding](round(slope / self.threshold, DIGITS)))
        largest = max(v for v in dimension.options if not isinstance(v, str))
        lowest = -math.ceil(round(largest / step, DIGITS)) + 1  # as far down as leaves a choice
        return self._moved(Tendency(dimension, qualities, slope, wanted, 0, ()), max(wanted, lowest))

    def _moved(self, tendency: Tendency, steps: int) -> Tendency:
        dimension = tendency.dimension
        moved = moved_options(dimension.options, steps * self.steps[dimension.name], dimension.path)
        return replace(tendency, steps=steps, moved=moved)

    def restrain(
        self, space: SearchSpace, tendencies: Sequence[Tendency], beyond: Callable[[SearchSpace], int]
    ) -> tuple[Tendency, ...]:
        """Take back steps, one by one from the weakest slope on, until the space is within its limits.

        Eq. 8 knows no limits: under its floor every dimension that seems to gain anything moves up, and a space can
        leave all that it was searched for in one step.

        Args:
            space: The space that moves.
            tendencies: Where it should.
            beyond: Where a space is: 1 where it is too large, -1 where it is too small, 0 where it may be reached.
        """
        kept = list(tendencies)
        while side := beyond(self.evolve(space, kept)):
            guilty = [i for i, tendency in enumerate(kept) if tendency.steps * side > 0]
            if not guilty:
                break
            weakest = min(guilty, key=lambda i: abs(kept[i].slope))
            kept[weakest] = self._moved(kept[weakest], kept[weakest].steps - side)
        return tuple(kept)

    def evolve(self, space: SearchSpace, tendencies: Sequence[Tendency]) -> SearchSpace:
        """The space after its dimensions have moved (Alg. 1, line 10)."""
        return space.evolve({t.dimension.path: t.steps * self.steps[t.dimension.name] for t in tendencies if t.steps})


def _is_size(value: Any) -> bool:
    """Whether a setting is a number above 0."""
    return not isinstance(value, bool) and isinstance(value, (int, float)) and math.isfinite(value) and value > 0


def _slope(x: Sequence[float], y: Sequence[float]) -> float:
    """w of the least-squares line y = w · x + b; 0 for less than two points."""
    if len(x) < 2:
        return 0.0
    centred = np.asarray(x) - np.mean(x)
    return float(centred @ (np.asarray(y) - np.mean(y)) / (centred @ centred))
