"""Checks of settings that several searches have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from ..errors import VitnasError
from ..utils import checks
from .feasible import FeasibleSpace

COSTS = ('macs', 'params', 'latency')
"""Valid costs of a front."""


def check_counts(settings: Any, **least: int) -> None:
    """Refuse fields of a dataclass that are not whole numbers, or too small.

    Args:
        settings: The dataclass. A field that defaults to None may be None.
        **least: Smallest valid number of each field.

    Raises:
        VitnasError: A field is out of range.
    """
    defaults = {field.name: field.default for field in fields(settings)}
    for name, lowest in least.items():
        value = getattr(settings, name)
        if value is None and defaults[name] is None:
            continue
        checks.whole(name, value, lowest)


def check_cost(cost: Any) -> None:
    """Refuse a cost that candidates do not have.

    Raises:
        VitnasError: The cost is not in ``COSTS``.
    """
    checks.one_of('cost', cost, COSTS)


def check_priced(cost: str | None, space: FeasibleSpace) -> None:
    """Refuse a front of latency if architectures have no latency.

    Raises:
        VitnasError: The cost is latency, and there is no latency table.
    """
    if cost == 'latency' and space.price(space.witness).latency is None:
        raise VitnasError(
            '`cost` is latency, which needs measured latencies: give latency_table, which '
            'tools/analysis/build_latency_table.py makes, but got none'
        )


def check_chances(prob: float | Mapping[str, float], space: FeasibleSpace) -> None:
    """Refuse invalid mutation probabilities.

    Raises:
        VitnasError: As :meth:`~vitnas_core.spaces.SearchSpace.mutate`.
    """
    space.space.mutate(space.space.smallest(), prob, np.random.default_rng(0))
