"""The order of held-out images: random, but the same on every rank and in every run."""

from __future__ import annotations

from collections.abc import Iterator, Sized

import numpy as np
from torch.utils.data import Sampler

from ..registry import DATA_SAMPLERS


@DATA_SAMPLERS.register_module()
class WholeSampler(Sampler):
    """Yield every sample of a dataset once, in one fixed random order, on every rank.

    The ranks of a search divide candidates, not images. Racing and successive halving need the first
    batches to be a fair sample of all, hence the random order.

    Args:
        dataset: The dataset.
        seed: Ignored, so that a resumed search sees the same batches; mmengine passes it to every sampler.
            Defaults to None.
    """

    def __init__(self, dataset: Sized, seed: int | None = None) -> None:
        self.order = np.random.default_rng(0).permutation(len(dataset)).tolist()
        self.start = 0
        """Number of samples that the next iteration skips: those of batches that are already in memory."""

    def __iter__(self) -> Iterator[int]:
        return iter(self.order[self.start :])

    def __len__(self) -> int:
        return len(self.order) - self.start
