"""The non-dominated set: candidates that no other beats in score without costing more."""

from __future__ import annotations

from collections.abc import Iterable

from .candidate import Candidate, ranked


def pareto_front(candidates: Iterable[Candidate], cost: str = 'macs') -> list[Candidate]:
    """The candidates that are not dominated, cheapest first.

    One dominates another when it scores at least as well and costs no more, and is better in one of
    the two. Of equals the older one stays. Only candidates that compete are looked at.

    Args:
        candidates: Any candidates.
        cost: Which cost. Defaults to ``'macs'``.
    """
    front: list[Candidate] = []
    for candidate in sorted(ranked(candidates), key=lambda c: (c.cost[cost], -c.score, c.id)):
        if not front or candidate.score > front[-1].score:
            front.append(candidate)
    return front
