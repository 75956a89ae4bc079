"""Limits on costs, and checks that a space can meet them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields

import numpy as np

from ..errors import InfeasibleError, VitnasError
from ..spaces import Arch, SearchSpace
from .cost import Cost

Price = Callable[[Arch], Cost]
"""Function that prices an architecture, e.g. ``functools.partial(AutoFormer.cost, input_size=224)``."""

_STARTS = 40
"""Number of architectures from which :meth:`Constraint.find` starts before it gives up."""
ENUMERABLE = 20_000
"""Spaces up to this size are enumerated if nothing faster finds an architecture."""


class Constraint:
    """Lower and upper limits on named costs.

    Args:
        limits: Cost name → (low, high), None for no bound, e.g.
            ``dict(macs=(None, 1.4e9), params=(None, 6e6), latency=(None, 0.02))``. Latency is in seconds.
            Defaults to None: everything is allowed.

    Raises:
        VitnasError: A name is not a cost, or a pair of limits is malformed.
    """

    def __init__(self, limits: Mapping[str, tuple[float | None, float | None]] | None = None) -> None:
        known = [f.name for f in fields(Cost)]
        self.limits: dict[str, tuple[float, float]] = {}
        if limits is not None and not isinstance(limits, Mapping):
            raise VitnasError(f'a constraint should be a dict of limits by cost, e.g. macs, but got {limits!r}')
        for name, pair in (limits or {}).items():
            if name not in known:
                raise VitnasError(f'a constraint should be on {" or ".join(known)}, but got {name!r}')
            if not isinstance(pair, (tuple, list)) or len(pair) != 2:
                raise VitnasError(f'the limits of {name} should be a pair (low, high), but got {pair!r}')
            try:
                low = -np.inf if pair[0] is None else float(pair[0])
                high = np.inf if pair[1] is None else float(pair[1])
            except (TypeError, ValueError):
                low = high = np.nan
            if not low <= high:
                raise VitnasError(f'the limits of {name} should be numbers with low <= high, but got {pair!r}')
            self.limits[name] = (low, high)

    def __repr__(self) -> str:
        return f'Constraint({self.limits})'

    def met(self, cost: Cost) -> bool:
        """Return whether a cost is within every limit."""
        return self.violation(cost) == 0.0

    def violation(self, cost: Cost) -> float:
        """Sum of the relative excesses over the limits; 0 if all are met.

        Raises:
            VitnasError: Latency is limited, but the cost has none.
        """
        total = 0.0
        for name, (low, high) in self.limits.items():
            value = _value(cost, name)
            if value > high:
                total += value / high - 1 if high > 0 else np.inf
            elif value < low:
                total += 1 - value / low
        return total

    def find(self, space: SearchSpace, price: Price) -> Arch:
        """Find an architecture that meets every limit, so that a search fails at once if there is none.

        Checks each limit alone against :func:`reachable_range`. Then descends on :meth:`violation` from the smallest,
        the largest and random architectures. Finally enumerates small spaces.

        Raises:
            InfeasibleError: No architecture was found; the message has the reachable range. One may still exist if
                limits conflict or are narrower than the steps between architectures.
        """
        called = space.name or f'this {space.family} space'
        ranges = {name: reachable_range(space, price, name) for name in self.limits}
        for name, (low, high) in self.limits.items():
            least, most = ranges[name]
            if most < low or least > high:
                limit = f'{name} <= {_short(name, high)}' if least > high else f'{name} >= {_short(name, low)}'
                reach = f'{_short(name, least)} to {_short(name, most)}'
                raise InfeasibleError(f'no architecture of {called} has {limit}; the reachable range is {reach}')
        rng, nearest = np.random.default_rng(0), (space.smallest(), np.inf)
        for start in range(_STARTS):
            arch = (space.smallest, space.largest)[start]() if start < 2 else space.sample(rng)
            found = _descend(space, arch, lambda x: self.violation(price(x)))
            if found[1] == 0.0:
                return found[0]
            nearest = min(nearest, found, key=lambda pair: pair[1])
        if space.size() <= ENUMERABLE:  # the limits may lie between two steps of the descent
            found_all = next((arch for arch in space.iterate() if self.met(price(arch))), None)
            if found_all is not None:
                return found_all
        cost = price(nearest[0])
        reach = ', '.join(f'{name} {_short(name, low)} to {_short(name, high)}' for name, (low, high) in ranges.items())
        raise InfeasibleError(
            f'found no architecture of {called} with {self._words()}; the reachable range is {reach}, '
            f'and the nearest found has {", ".join(f"{n} {_short(n, getattr(cost, n))}" for n in self.limits)}'
        )

    def _words(self) -> str:
        bounds = []
        for name, (low, high) in self.limits.items():
            bounds += [f'{name} >= {_short(name, low)}'] * (low > -np.inf)
            bounds += [f'{name} <= {_short(name, high)}'] * (high < np.inf)
        return ', '.join(bounds)


def reachable_range(space: SearchSpace, price: Price, name: str) -> tuple[float, float]:
    """The least and the greatest value of a cost in a space, found in milliseconds.

    Starts from the smallest and the largest architecture and changes single dimensions until none helps.
    This is exact if each dimension moves the cost in one direction whatever the others are, as more heads,
    wider tokens or more blocks do. Measured latency does so up to noise.

    Args:
        space: The search space.
        price: Function that prices an architecture.
        name: ``'params'``, ``'macs'`` or ``'latency'``.

    Raises:
        VitnasError: ``name`` is latency, but the costs have none.
    """
    least = _descend(space, space.smallest(), lambda arch: _value(price(arch), name))
    most = _descend(space, space.largest(), lambda arch: -_value(price(arch), name))
    return least[1], -most[1]


def _value(cost: Cost, name: str) -> float:
    value = getattr(cost, name)
    if value is None:
        raise VitnasError(
            f'a limit on {name} needs measured latencies, but the costs have none; '
            f'give latency_table, which tools/analysis/build_latency_table.py makes'
        )
    return value


def _descend(space: SearchSpace, arch: Arch, value: Callable[[Arch], float]) -> tuple[Arch, float]:
    """Change one dimension at a time as long as this lowers the value."""
    best = value(arch)
    improved = True
    while improved and best != 0.0:
        improved = False
        for entry, dim in enumerate(space.dimensions):
            code = space.encode(arch)
            for option in range(len(dim.options)):
                if option == code[entry] or code[entry] < 0:
                    continue
                # Blocks that this change adds start at their smallest.
                changed = np.where(code < 0, 0, code)
                changed[entry] = option
                candidate = space.decode(changed)
                found = value(candidate)
                if found < best:
                    arch, best, improved = candidate, found, True
    return arch, best


def _short(name: str, value: float) -> str:
    if name == 'latency':
        return f'{value:.4g} s'
    for size, unit in ((1e9, 'G'), (1e6, 'M')):
        if abs(value) >= size:
            return f'{value / size:.5g}{unit}'
    return f'{value:.5g}'
