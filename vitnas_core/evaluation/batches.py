"""``KeptBatches``: hold-out images that are decoded once and kept in memory."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from mmengine.runner import Runner
from mmengine.structures import BaseDataElement
from torch import Tensor
from torch.utils.data import DataLoader

from ..datasets.order import WholeSampler


def whole(dataloader: Mapping[str, Any]) -> dict[str, Any]:
    """Config of a dataloader that reads every image once, in one fixed random order, on every rank."""
    data = {name: value for name, value in dataloader.items() if name not in ('sampler', 'batch_sampler')}
    return {**copy.deepcopy(data), 'sampler': dict(type='vitnas.WholeSampler'), 'drop_last': False}


def whole_loader(dataloader: Mapping[str, Any], seed: int = 0) -> DataLoader:
    """Build the dataloader of :func:`whole` without a runner.

    Args:
        dataloader: Config of the images.
        seed: Seed of random transforms in worker processes; the order does not depend on it. Defaults to 0.
    """
    return Runner.build_dataloader(whole(dataloader), seed=seed)


class KeptBatches:
    """Cache of the first batches of a dataloader.

    Args:
        dataloader: The images, in the order of :class:`WholeSampler`.
        keep: Turns a decoded batch into the data to keep. Defaults to a deep copy; each tensor of a worker holds an
            open file.
        keep_gb: Keep batches up to this size; decode the others again each time. Defaults to infinity.
    """

    def __init__(
        self, dataloader: DataLoader, keep: Callable[[Any], Any] = copy.deepcopy, keep_gb: float = math.inf
    ) -> None:
        self.dataloader, self.keep, self._length = dataloader, keep, len(dataloader)
        self._room = keep_gb * 2**30
        self._kept: list[Any] = []
        self._kept_samples = 0

    def __len__(self) -> int:
        return self._length

    def first(self, wanted: int) -> Iterator[Any]:
        """Yield the first batches, at most as many as there are.

        Batches that are not in memory are decoded, and kept as long as there is room.
        """
        yield from self._kept[:wanted]
        missing = min(wanted, self._length) - len(self._kept)
        if missing <= 0:
            return
        sampler, has_room = self.dataloader.sampler, self._room > 0
        assert isinstance(sampler, WholeSampler)
        sampler.start = self._kept_samples
        try:
            for _, decoded in zip(range(missing), self.dataloader):
                batch = self.keep(decoded)
                if has_room:
                    self._room -= _size(batch)
                    has_room = self._room > 0
                if has_room:
                    self._kept.append(batch)
                    self._kept_samples += self.dataloader.batch_size or 0
                yield batch
        finally:
            sampler.start = 0


def _size(batch: Any) -> int:
    """Bytes of the tensors in a batch."""
    if isinstance(batch, Tensor):
        return batch.numel() * batch.element_size()
    if isinstance(batch, (dict, BaseDataElement)):
        return sum(_size(value) for value in batch.values())
    if isinstance(batch, (list, tuple)):
        return sum(_size(value) for value in batch)
    return 0
