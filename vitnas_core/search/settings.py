"""Settings of a search in a config: split them into those of the algorithm and those of the loop."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
from collections.abc import Iterable, Mapping
from typing import Any

from ..errors import VitnasError
from ..registry import ALGORITHMS, class_of
from .algorithms import SearchAlgorithm


def build_algorithm(config: Mapping[str, Any] | SearchAlgorithm) -> SearchAlgorithm:
    """Build an algorithm from its config.

    Raises:
        VitnasError: The config is not that of an algorithm, or a setting is unknown, missing or out of range.
    """
    if isinstance(config, SearchAlgorithm):
        return config
    kind = algorithm_class(config)
    check_names(config, kind.fields(), f'vitnas.{kind.__name__}')
    return kind(**{name: value for name, value in config.items() if name != 'type'})


def algorithm_class(config: Any) -> type[SearchAlgorithm]:
    """Return the class of an algorithm's config.

    Raises:
        VitnasError: The config is not that of an algorithm.
    """
    found = class_of(ALGORITHMS, config) if isinstance(config, Mapping) else None
    if not isinstance(found, type) or not issubclass(found, SearchAlgorithm):
        raise VitnasError(
            f'`algorithm` should be the config of a search algorithm, e.g. dict(type="vitnas.Evolution", …), but got '
            f'{config!r}'
        )
    return found


def split(kind: type[SearchAlgorithm], settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split flat settings into those of the algorithm and those of the loop."""
    own = {field.name for field in kind.fields()}
    return (
        {name: value for name, value in settings.items() if name in own},
        {name: value for name, value in settings.items() if name not in own},
    )


def check_names(settings: Iterable[str], known: Iterable[Any], what: str) -> None:
    """Refuse settings that are unknown or missing.

    Args:
        settings: Names that are given; ``type`` may be one of them.
        known: Fields of a dataclass or parameters of a function.
        what: Name of the receiver, for the error.

    Raises:
        VitnasError: A setting is unknown or missing; the message names the nearest known one.
    """
    taken = {one.name: _is_needed(one) for one in known}
    given = {name for name in settings if name != 'type'}
    for name in sorted(given - set(taken)):
        near = difflib.get_close_matches(name, taken, 1)
        meant = f'did you mean {near[0]}? ' if near else ''
        raise VitnasError(f'{what} has no setting {name}; {meant}it takes {", ".join(sorted(taken))}')
    for name, needed in taken.items():
        if needed and name not in given:
            raise VitnasError(f'{what} should have `{name}`')


def _is_needed(one: Any) -> bool:
    """Return whether a field or a parameter has no default."""
    missing = (dataclasses.MISSING, inspect.Parameter.empty)
    return all(getattr(one, name, missing[0]) in missing for name in ('default', 'default_factory'))
