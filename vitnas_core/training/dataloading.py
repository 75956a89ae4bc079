"""Data loading that can start anywhere: a sample's randomness depends on its position, not on who loads it.

mmengine seeds workers once, so a worker's random numbers depend on all that it loaded before. A training that is
resumed in the middle of an epoch then sees other crops, and so does one with more workers. Here each sample is seeded
by (seed, pass over the data, position in that pass), whatever the number of workers and ranks. A resumed pass skips
positions without loading them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from mmengine.dist import get_rank, get_world_size
from torch.utils.data import DataLoader, Dataset

from ..errors import VitnasError
from ..utils.randomness import kept, seed_globals


class SampleKey(NamedTuple):
    """Request of a batch sampler: the index of a sample and the seed of its transforms."""

    number: int
    seed: int
    data_pass: int
    position: int


class SeededDataset(Dataset):
    """A dataset that loads samples by :class:`SampleKey`; everything else is delegated to the wrapped one.

    Args:
        dataset: The dataset.
    """

    def __init__(self, dataset: Dataset) -> None:
        self.dataset: Any = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        return self.dataset[index]

    def __getitems__(self, keys: Sequence[SampleKey]) -> list[Any]:
        """Load the samples of a batch, each seeded by its key. torch's data loader calls this."""
        with kept():
            return [self._load(key) for key in keys]

    def _load(self, key: SampleKey) -> Any:
        seed_globals(key.seed, key.data_pass, key.position)
        return self.dataset[key.number]

    def __setattr__(self, name: str, value: Any) -> None:
        """Set attributes of the wrapped dataset: hooks that change a recipe set ``dataloader.dataset.pipeline``."""
        if name == 'dataset':
            object.__setattr__(self, name, value)
        else:
            setattr(self.dataset, name, value)

    def __getattr__(self, name: str) -> Any:
        if name == 'dataset':  # while being unpickled
            raise AttributeError(name)
        return getattr(self.dataset, name)


class KeyedBatchSampler:
    """A batch sampler that numbers the samples of a pass and can skip its first batches.

    Args:
        batch_sampler: The batch sampler to wrap.
    """

    def __init__(self, batch_sampler: Any) -> None:
        self.batch_sampler = batch_sampler
        self.sampler = batch_sampler.sampler  # where mmengine's DistSamplerSeedHook looks for set_epoch
        self.seed = self.data_pass = self.first_batch = 0

    def start(self, seed: int, data_pass: int, first_batch: int) -> None:
        """Set where the next iteration starts: the pass over the data and its first batch."""
        self.seed, self.data_pass, self.first_batch = seed, data_pass, first_batch
        if hasattr(self.sampler, 'seed'):  # a resumed training's seed may not be the one that it was built with
            self.sampler.seed = seed
        if hasattr(self.sampler, 'set_epoch'):
            self.sampler.set_epoch(data_pass)

    def __len__(self) -> int:
        return len(self.batch_sampler)

    def __iter__(self) -> Iterator[list[SampleKey]]:
        rank, world, position = get_rank(), get_world_size(), 0
        for number, batch in enumerate(self.batch_sampler):
            if number >= self.first_batch:
                # Ranks take turns in mm's samplers, so this numbering does not depend on their number.
                places = range(position * world + rank, (position + len(batch)) * world, world)
                yield [SampleKey(i, self.seed, self.data_pass, place) for i, place in zip(batch, places)]
            position += len(batch)


class SeededLoader(DataLoader):
    """The same data loader with keyed samples.

    Args:
        loader: The data loader.

    Attributes:
        batches (KeyedBatchSampler): Says where the next iteration starts.

    Raises:
        VitnasError: The data loader does not make batches.
    """

    def __init__(self, loader: DataLoader) -> None:
        if loader.batch_sampler is None:
            raise VitnasError('the training data loader should make batches: give it a batch_size')
        more: dict[str, Any] = {'prefetch_factor': loader.prefetch_factor} if loader.num_workers else {}
        self.batches = KeyedBatchSampler(loader.batch_sampler)
        batches: Any = self.batches  # torch's annotation asks for numbers of samples instead of keys
        super().__init__(
            SeededDataset(loader.dataset),
            batch_sampler=batches,
            num_workers=loader.num_workers,
            collate_fn=loader.collate_fn,
            pin_memory=loader.pin_memory,
            timeout=loader.timeout,
            worker_init_fn=loader.worker_init_fn,
            multiprocessing_context=loader.multiprocessing_context,
            persistent_workers=loader.persistent_workers,
            **more,
        )
