"""``Workers``: the interface that runs many independent evaluations, in this process or in others."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Failure:
    """The reason why an item has no result.

    Args:
        reason: Exception of the function, or the way in which the worker ended.
        deaths: Number of workers that died on the item. Defaults to 0: the function raised.
    """

    reason: str
    deaths: int = 0


class Workers(ABC):
    """Run a function on many items, in any order.

    The caller owns all state: items, results, retries. Workers in the caller's process let exceptions pass; others
    yield a :class:`Failure`.
    """

    @abstractmethod
    def start(self, make: Callable[..., Callable[[Any], Any]], shared: Sequence[Any] = ()) -> None:
        """Let each worker build its function once.

        Args:
            make: ``make(*shared)`` gives the function from an item to its result. For workers in other processes it
                must be picklable.
            shared: Large arguments of ``make``, as NumPy arrays; one copy per machine. Defaults to none.
        """

    @abstractmethod
    def map_unordered(self, items: Iterable[Any]) -> Iterator[tuple[int, Any | Failure]]:
        """Run the function on items; yield (number of the item, its result or :class:`Failure`) as each is done."""

    def gather(self, results: Mapping[int, Any]) -> dict[int, Any]:
        """Add the results of other processes that run the same program; by default there are none."""
        return dict(results)

    def close(self) -> None:  # noqa: B027  (those in this process have nothing to stop)
        """Stop the workers; by default there is nothing to stop."""
