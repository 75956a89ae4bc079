"""``serial``: one item after another, in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ..registry import WORKERS
from .base import Workers


@WORKERS.register_module(name='serial')
class SerialWorkers(Workers):
    """Run items in their order, in this process."""

    def start(self, make: Callable[..., Callable[[Any], Any]], shared: Sequence[Any] = ()) -> None:
        """Build the function."""
        self._run = make(*shared)

    def map_unordered(self, items: Iterable[Any]) -> Iterator[tuple[int, Any]]:
        """Run the function on each item in turn; its exceptions pass."""
        return ((number, self._run(item)) for number, item in enumerate(items))
