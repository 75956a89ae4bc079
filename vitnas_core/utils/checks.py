"""Checks of settings: each returns the checked value, or raises an error that names the problem."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any

from ..errors import VitnasError

Check = Callable[[str, Any], Any]
"""Takes the name and the value of a setting; returns the checked value."""


def whole(name: str, value: Any, least: int = 1, error: type[VitnasError] = VitnasError) -> int:
    """Check a whole number.

    Raises:
        VitnasError: The value is not a whole number, or is too small. ``error`` is the class that is raised.
    """
    if type(value) is int and value >= least:  # the usual case, fast
        return value
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise error(f'`{name}` should be a whole number of at least {least}, but got {value!r}')
    return int(value)


def rate(name: str, value: Any) -> float:
    """Check a probability, such as a rate of dropout or stochastic depth.

    Raises:
        VitnasError: The value is not from 0 to 1.
    """
    if not _is_number(value) or not 0 <= value <= 1:
        raise VitnasError(f'`{name}` should be from 0 to 1, but got {value!r}')
    return value


def fraction(name: str, value: Any) -> float:
    """Check a fraction, above 0 and at most 1.

    Raises:
        VitnasError: The value is not above 0 and at most 1.
    """
    if not _is_number(value) or not 0 < value <= 1:
        raise VitnasError(f'`{name}` should be above 0 and at most 1, but got {value!r}')
    return value


def positive(name: str, value: Any) -> float:
    """Check a number above 0.

    Raises:
        VitnasError: The value is not a number above 0.
    """
    if not _is_number(value) or not value > 0:
        raise VitnasError(f'`{name}` should be above 0, but got {value!r}')
    return value


def least(name: str, value: Any, lowest: float = 0) -> float:
    """Check a number with a lower bound.

    Raises:
        VitnasError: The value is not a number, or is below ``lowest``.
    """
    if not _is_number(value) or not value >= lowest:
        raise VitnasError(f'`{name}` should be a number of at least {lowest}, but got {value!r}')
    return value


def number(name: str, value: Any) -> float:
    """Check a number of any sign.

    Raises:
        VitnasError: The value is no number.
    """
    if not _is_number(value):
        raise VitnasError(f'`{name}` should be a number, but got {value!r}')
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and -math.inf < value < math.inf


def flag(name: str, value: Any) -> bool:
    """Check a flag.

    Raises:
        VitnasError: The value is neither True nor False.
    """
    if not isinstance(value, bool):
        raise VitnasError(f'`{name}` should be True or False, but got {value!r}')
    return value


def one_of(name: str, value: Any, options: Sequence[Any]) -> Any:
    """Check that a value is one of several options.

    Raises:
        VitnasError: The value is not one of them.
    """
    if value not in options:
        raise VitnasError(f'`{name}` should be one of {", ".join(map(str, options))}, but got {value!r}')
    return value


def size(name: str, value: Any) -> tuple[int, int]:
    """Check a size, given as one side or as a pair, and return (height, width).

    Raises:
        VitnasError: The value is neither a whole number above 0 nor a pair of them.
    """
    if type(value) is int and value > 0:
        return value, value
    pair = tuple(value) if isinstance(value, (list, tuple)) else (value, value)
    if len(pair) != 2 or any(isinstance(side, bool) or not isinstance(side, Integral) or side < 1 for side in pair):
        raise VitnasError(f'`{name}` should be a whole number above 0 or a pair of them, but got {value!r}')
    return int(pair[0]), int(pair[1])


def sequence(name: str, value: Any) -> Any:
    """Turn a list into a tuple; return anything else as it is."""
    return tuple(value) if isinstance(value, list) else value


def stage_indices(name: str, value: Any, count: int) -> tuple[int, ...]:
    """Check indices of stages; negative ones count from the last stage.

    Raises:
        VitnasError: There is no index, or one is out of range.
    """
    valid = isinstance(value, (list, tuple)) and value and all(type(i) is int for i in value)
    if not valid or not all(-count <= i < count for i in value):
        raise VitnasError(
            f'`{name}` should be from {-count} to {count - 1}, as there are {count} stages, but got {value!r}'
        )
    return tuple(value)
