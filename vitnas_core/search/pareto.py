"""The non-dominated set: candidates that no other candidate beats in score without costing more."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from .candidate import Candidate, ranked


def pareto_front(candidates: Iterable[Candidate], cost: str = 'macs') -> list[Candidate]:
    """Return the candidates that are not dominated, cheapest first.

    One candidate dominates another if it scores at least as well, costs no more, and is better in one of the two. Of
    equals, the older one stays. Only complete candidates on all hold-out images are compared.

    Args:
        candidates: Any candidates.
        cost: Name of the cost. Defaults to ``'macs'``.
    """
    whole = sorted(ranked(candidates), key=lambda candidate: candidate.id)
    scores = np.array([candidate.score for candidate in whole], dtype=float)
    costs = np.array([candidate.cost[cost] for candidate in whole], dtype=float)
    return [whole[i] for i in non_dominated(scores, costs)]


def non_dominated(scores: np.ndarray, costs: np.ndarray) -> np.ndarray:
    """Find the entries that no other beats in score without costing more, cheapest first; of equals, the first.

    Args:
        scores: Greater is better, shape (n,).
        costs: Smaller is better, shape (n,).

    Returns:
        Indices, int64; both scores and costs rise along them.
    """
    order = np.lexsort((-scores, costs))
    rising = np.ones(len(order), dtype=bool)
    rising[1:] = scores[order][1:] > np.maximum.accumulate(scores[order])[:-1]
    return order[rising]


def best_layers(scores: np.ndarray, costs: np.ndarray, count: int) -> np.ndarray:
    """Select the front, then the front of the rest, and so on until there are enough.

    If a layer has too many, those that are spread best over the cost are taken.

    Args:
        scores: Greater is better, shape (n,).
        costs: Smaller is better, shape (n,).
        count: Number to select; all if there are fewer.

    Returns:
        Indices, int64, layer by layer, each cheapest first.
    """
    chosen, left = np.empty(0, dtype=np.int64), np.arange(len(scores))
    while len(chosen) < count and len(left):
        layer = left[non_dominated(scores[left], costs[left])]
        chosen = np.concatenate([chosen, layer[spread(costs[layer], count - len(chosen))]])
        left = np.setdiff1d(left, layer)
    return chosen


def spread(costs: np.ndarray, count: int) -> np.ndarray:
    """Select some of many costs, spread over their range as evenly as they allow.

    Args:
        costs: In rising order, shape (n,).
        count: Number to select; all if there are fewer. With two or more, the first and the last are among them.

    Returns:
        Indices, int64, rising.
    """
    if len(costs) <= count:
        return np.arange(len(costs))
    free = np.ones(len(costs), dtype=bool)
    for wanted in np.linspace(costs[0], costs[-1], count):
        free[np.argmin(np.where(free, np.abs(costs - wanted), np.inf))] = False
    return np.flatnonzero(~free)
