"""Random architectures within the limits, drawn in a bounded number of attempts."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from functools import cached_property, lru_cache

import numpy as np

from ..costs import Constraint, Cost
from ..costs.constraint import ENUMERABLE
from ..spaces import Arch, SearchSpace

_DRAWS = 100
"""Random draws for one architecture before the walk."""
_STEPS, _MOST_STEPS = 200, 2000
"""Steps of a walk, and of a walk that has found nothing new so far."""
_PRICED = 2**12
"""Number of cached prices, so that a candidate is priced once from its draw to the journal."""


class FeasibleSpace:
    """The architectures of a space within the limits.

    Args:
        space: The search space.
        price: Prices an architecture.
        constraint: The limits.

    Attributes:
        price: The same function with a cache.
        witness (Arch): An architecture within the limits.

    Raises:
        InfeasibleError: No architecture meets the limits.
    """

    def __init__(self, space: SearchSpace, price: Callable[[Arch], Cost], constraint: Constraint) -> None:
        self.space, self.constraint = space, constraint
        self.price = lru_cache(_PRICED)(price)
        self.witness = constraint.find(space, self.price)

    def __contains__(self, arch: Arch) -> bool:
        return self.constraint.met(self.price(arch))

    def draw(self, rng: np.random.Generator, seen: Container[Arch]) -> Arch | None:
        """Draw a random architecture within the limits that is not in ``seen``; None if none is found.

        Random draws may miss a narrow range of costs. Then a walk of small mutations from a known architecture stays
        inside it. A small space is enumerated in the end, so that None means that it is exhausted.
        """
        for _ in range(_DRAWS):
            arch = self.space.sample(rng)
            if arch not in seen and arch in self:
                return arch
        found = self._walk(rng, seen)
        if found is None and self._all is not None:
            left = [arch for arch in self._all if arch not in seen]
            found = left[rng.integers(len(left))] if left else None
        return found

    def draw_several(self, count: int, rng: np.random.Generator, seen: Iterable[Arch] = ()) -> list[Arch]:
        """Draw random architectures within the limits, all different and not in ``seen``; fewer if there are none."""
        taken = set(seen)
        drawn: list[Arch] = []
        while len(drawn) < count and (arch := self.draw(rng, taken)) is not None:
            taken.add(arch)
            drawn.append(arch)
        return drawn

    def _walk(self, rng: np.random.Generator, seen: Container[Arch]) -> Arch | None:
        chance = min(1.0, 2.0 / len(self.space.dimensions))
        current, found = self.witness, None
        if current not in seen:
            found = current
        for step in range(_MOST_STEPS):
            if step >= _STEPS and found is not None:
                break
            changed = self.space.mutate(current, chance, rng)
            if changed in self:
                current = changed
                found = changed if changed not in seen else found
        return found

    @cached_property
    def _all(self) -> list[Arch] | None:
        return [a for a in self.space.iterate() if a in self] if self.space.size() <= ENUMERABLE else None
