"""The order in which hold-out images are read: one random order, the same on every rank and in every run."""

from __future__ import annotations

from collections.abc import Iterator, Sized

import numpy as np
from torch.utils.data import Sampler

from ..registry import DATA_SAMPLERS


@DATA_SAMPLERS.register_module()
class WholeSampler(Sampler):
    """Every sample of a dataset once, in one fixed random order, all of them on every rank.

    The ranks of a search share out candidates, not images. The order is random so that the first
    batches are a fair sample of all, which racing and successive halving rely on.

    Args:
        dataset: The dataset.
        seed: Given by mmengine to every sampler; the order does not depend on it, so that a search that
            goes on later sees the same batches. Defaults to None.
    """

    def __init__(self, dataset: Sized, seed: int | None = None) -> None:
        self.order = np.random.default_rng(0).permutation(len(dataset)).tolist()
        self.start = 0
        """How many samples the next iteration leaves out: those of the batches that are kept already."""

    def __iter__(self) -> Iterator[int]:
        return iter(self.order[self.start :])

    def __len__(self) -> int:
        return len(self.order) - self.start
