"""Children of architectures: mutations and crossovers that are new and within the limits."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence

import numpy as np

from ..spaces import Arch
from .feasible import FeasibleSpace

ATTEMPTS = 10
"""Attempts per wanted child, as published for AutoFormer."""


def breed(
    feasible: FeasibleSpace,
    parents: Sequence[Arch],
    *,
    mutations: int,
    crossovers: int,
    prob: float | Mapping[str, float],
    seen: Container[Arch],
    rng: np.random.Generator,
    most: int | None = None,
) -> dict[Arch, tuple[int, ...]]:
    """Return mutations, then crossovers, of parents that are picked at random; all children are different.

    Args:
        feasible: The space and its limits.
        parents: Parents of the children; without any, there are no children.
        mutations: Number of wanted mutations; there may be fewer if ten times the attempts do not suffice.
        crossovers: Number of wanted crossovers, likewise.
        prob: Mutation probabilities, as :meth:`~vitnas_core.spaces.SearchSpace.mutate` takes them.
        seen: Architectures to avoid.
        rng: Source of all randomness.
        most: Largest number of children. Defaults to None: as many as are wanted.

    Returns:
        Each child, with the indices of its parents in ``parents``.
    """
    made: dict[Arch, tuple[int, ...]] = {}
    most = mutations + crossovers if most is None else most

    def pick() -> int:
        return int(rng.integers(len(parents)))

    def mutate() -> tuple[Arch, tuple[int, ...]]:
        one = pick()
        return feasible.space.mutate(parents[one], prob, rng), (one,)

    def cross() -> tuple[Arch, tuple[int, ...]]:
        one, two = pick(), pick()
        return feasible.space.cross(parents[one], parents[two], rng), (one, two)

    def make(wanted: int, child: Callable[[], tuple[Arch, tuple[int, ...]]]) -> None:
        full = min(len(made) + wanted, most)
        for _ in range(ATTEMPTS * wanted):
            if len(made) >= full:
                break
            arch, numbers = child()
            if arch not in seen and arch not in made and arch in feasible:
                made[arch] = numbers

    if parents:
        make(mutations, mutate)
        make(crossovers, cross)
    return made
