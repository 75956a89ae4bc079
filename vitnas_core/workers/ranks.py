"""``ranks``: the processes of a ``torch.distributed`` run divide the items."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from mmengine.dist import all_gather_object, get_dist_info

from ..registry import WORKERS
from .serial import SerialWorkers


@WORKERS.register_module(name='ranks')
class RankWorkers(SerialWorkers):
    """Run every n-th item on each of n ranks. All ranks run the same program and call :meth:`gather` after each map."""

    def map_unordered(self, items: Iterable[Any]) -> Iterator[tuple[int, Any]]:
        """Run the function on the items of this rank."""
        rank, world = get_dist_info()
        return ((number, self._run(item)) for number, item in islice(enumerate(items), rank, None, world))

    def gather(self, results: Mapping[int, Any]) -> dict[int, Any]:
        """Exchange results, so that every rank has all of them."""
        return {number: result for part in all_gather_object(dict(results)) for number, result in part.items()}
