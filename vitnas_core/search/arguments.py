"""Arguments that several searches take: whole numbers, and the cost of a front."""

from __future__ import annotations

from typing import Any

from ..errors import VitnasError
from ..latency import LatencyTable

COSTS = ('macs', 'params', 'latency')
"""What a front can be of, besides the score."""


def check_counts(*counts: tuple[str, Any, int]) -> None:
    """Refuse what is no whole number, or too small.

    Args:
        *counts: (name, value, least) of each.

    Raises:
        VitnasError: One is out of range.
    """
    for name, value, least in counts:
        if type(value) is not int or value < least:
            raise VitnasError(f'`{name}` of the search should be a whole number of at least {least}, got {value!r}')


def check_cost(cost: Any) -> None:
    """Refuse a cost that candidates do not have.

    Raises:
        VitnasError: It is none of ``COSTS``.
    """
    if cost not in COSTS:
        raise VitnasError(f'`cost` should be one of {", ".join(COSTS)}, but got {cost!r}')


def check_measured(cost: str | None, table: LatencyTable | None) -> None:
    """Refuse a latency that nothing gives.

    Raises:
        VitnasError: The cost is latency, and there is no table.
    """
    if cost == 'latency' and table is None:
        raise VitnasError(
            '`cost` is latency, which needs measured latencies: give latency_table, which '
            'tools/analysis/build_latency_table.py makes, but got none'
        )
