"""Quality of a search space and its evolution: S3's E-T error and tendencies (S3, Sec. 2.3, Eq. 5 to 8)."""

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
"""Number of best architectures in the paper's top-tier error."""

ROUNDINGS: dict[str, Callable[[float], float]] = {'floor': math.floor, 'symmetric': math.trunc}
"""Rounding of w / τ to whole steps: ``'floor'``, Eq. 8's, makes the smallest downward slope a step up; ``'symmetric'``
rounds towards zero on both sides."""


@dataclass(frozen=True)
class Sample:
    """An architecture drawn from a space, and its error in percent."""

    arch: Arch
    error: float


@dataclass(frozen=True)
class SpaceQuality:
    """The E-T error of a set of architectures: the mean of its two parts.

    Args:
        expected: Mean error of all architectures (Eq. 5).
        top: Mean error of the best ones.
        count: Number of architectures.
    """

    expected: float
    top: float
    count: int

    @property
    def et_error(self) -> float:
        """Mean of both parts."""
        return (self.expected + self.top) / 2

    @classmethod
    def of(cls, errors: Iterable[float], top: float = TOP) -> SpaceQuality:
        """Compute the quality of architectures with these errors.

        Args:
            errors: One error per architecture.
            top: Number of best architectures in the top tier (all if there are fewer); below 1, their fraction.
                Defaults to 50.
        """
        ordered = np.sort(np.fromiter(errors, float))
        best = top if top >= 1 else max(1, round(top * len(ordered)))
        return cls(float(ordered.mean()), float(ordered[: int(best)].mean()), len(ordered))


@dataclass(frozen=True)
class Tendency:
    """Direction in which one dimension should move.

    Args:
        dimension: The dimension.
        qualities: E-T error of the architectures with each choice; None for a choice that no architecture has.
        slope: w of the line through these errors (Eq. 7), in percent of error per step; 0 for less than two points.
        wanted: Number of steps by which Eq. 8 moves all choices.
        steps: Actual number of steps: fewer if no choice would be left or the space would leave its limits.
        moved: Choices after the move.
    """

    dimension: StageDimension
    qualities: tuple[SpaceQuality | None, ...]
    slope: float
    wanted: int
    steps: int
    moved: tuple[Value, ...]

    def to_dict(self) -> dict[str, Any]:
        """Convert to the JSON form."""
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
    """One step of a space search: a space, the samples drawn from it, and its tendencies.

    Args:
        space: The space.
        samples: Architectures drawn from it, within the limits.
        tendencies: Moves of its dimensions; empty for the last space, which is searched. Defaults to ().
        top: As in :meth:`SpaceQuality.of`. Defaults to 50.
    """

    space: SearchSpace
    samples: tuple[Sample, ...]
    tendencies: tuple[Tendency, ...] = ()
    top: float = TOP

    @property
    def quality(self) -> SpaceQuality:
        """E-T error of the space."""
        return SpaceQuality.of((sample.error for sample in self.samples), self.top)


def subspaces(dimension: StageDimension, samples: Sequence[Sample]) -> dict[Value, list[float]]:
    """Return the errors of the architectures with each choice of a dimension.

    Each block of a stage has its own choice, so an architecture counts once for every block that has the choice.
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
    """Evolution of a space by the errors of architectures drawn from it (Alg. 1, lines 5 to 10).

    The paper does not say in which unit the choices enter the line of Eq. 7. The default is the dimension's own step:
    w is then the gain of one step, in percent of error, and one threshold serves all dimensions. With the choices as
    they are (``unit='choice'``), w of a dimension of hundreds of channels is very small. The floor then moves it up by
    one step or not at all.

    Args:
        steps: γ: size of a step of a dimension, by its name, e.g. ``dict(depth=1, embed_dim=64)``. Dimensions that are
            not named stay.
        threshold: τ: slope that moves a dimension by one step. Defaults to 0.4.
        rounding: ``'floor'`` as in Eq. 8, or ``'symmetric'``, which treats both directions alike. Defaults to
            ``'floor'``.
        unit: ``'step'`` or ``'choice'``. Defaults to ``'step'``.
        top: Number of best architectures with a choice that are its top tier; below 1, their fraction. A number favours
            choices that many architectures have, and a limit on costs makes large choices rare: draw many more
            architectures than that, or give a fraction. Defaults to 50, as in the paper.

    Raises:
        VitnasError: An argument is invalid.
    """

    steps: Mapping[str, float]
    threshold: float = 0.4
    rounding: str = 'floor'
    unit: str = 'step'
    top: float = TOP

    def __post_init__(self) -> None:
        for name, valid in (('rounding', tuple(ROUNDINGS)), ('unit', ('step', 'choice'))):
            checks.one_of(name, getattr(self, name), valid)
        if checks.positive('top', self.top) > 1 and self.top != int(self.top):
            raise VitnasError(
                f'`top` should be a whole number of at least 1 or a fraction below 1, but got {self.top!r}'
            )
        checks.positive('threshold', self.threshold)
        if not isinstance(self.steps, Mapping):
            raise VitnasError(f'`steps` should be a dict of numbers by dimension, but got {self.steps!r}')
        for name, step in self.steps.items():
            checks.positive(f'steps.{name}', step)

    def check(self, space: SearchSpace) -> None:
        """Refuse steps that do not fit this space.

        Raises:
            VitnasError: A step is for a dimension that the space lacks or that offers words, or cuts a block in two.
            SpaceError: The blocks of a stage offer different options.
        """
        dimensions = stage_dimensions(space)
        words = {d.name for d in dimensions if any(isinstance(option, str) for option in d.options)}
        named = {d.name for d in dimensions} - words
        for name, step in self.steps.items():
            if name not in named:
                raise VitnasError(
                    f'`steps` has {name}, but the dimensions that can move are {", ".join(sorted(named))}'
                )
            if name == 'depth' and step != int(step):
                raise VitnasError(f'`steps` should be whole for depth, but got {step!r}')

    def tendencies(self, space: SearchSpace, samples: Sequence[Sample]) -> tuple[Tendency, ...]:
        """Compute the tendency of each dimension of a space, including those without a step.

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
        # The last decimals of a slope are rounding errors; they must not move a flat dimension.
        wanted = -int(ROUNDINGS[self.rounding](round(slope / self.threshold, DIGITS)))
        largest = max(v for v in dimension.options if not isinstance(v, str))
        lowest = -math.ceil(round(largest / step, DIGITS)) + 1  # as far down as a choice remains
        return self._moved(Tendency(dimension, qualities, slope, wanted, 0, ()), max(wanted, lowest))

    def _moved(self, tendency: Tendency, steps: int) -> Tendency:
        dimension = tendency.dimension
        moved = moved_options(dimension.options, steps * self.steps[dimension.name], dimension.path)
        return replace(tendency, steps=steps, moved=moved)

    def restrain(
        self, space: SearchSpace, tendencies: Sequence[Tendency], beyond: Callable[[SearchSpace], int]
    ) -> tuple[Tendency, ...]:
        """Take back steps, one by one from the weakest slope on, until the space is within its limits.

        Eq. 8 knows no limits: with its floor, every dimension that seems to gain anything moves up. One step can take a
        space beyond all limits of its search.

        Args:
            space: The space that moves.
            tendencies: Its tendencies.
            beyond: Position of a space: 1 if it is too large, -1 if it is too small, 0 if it is valid.
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
        """Return the space after its dimensions have moved (Alg. 1, line 10)."""
        return space.evolve({t.dimension.path: t.steps * self.steps[t.dimension.name] for t in tendencies if t.steps})


def _slope(x: Sequence[float], y: Sequence[float]) -> float:
    """Slope w of the least-squares line y = w · x + b; 0 for less than two points."""
    if len(x) < 2:
        return 0.0
    centred = np.asarray(x) - np.mean(x)
    return float(centred @ (np.asarray(y) - np.mean(y)) / (centred @ centred))
