"""Sandwich sampling: largest, smallest and random architectures (BigNAS; S3, Sec. 3.2; NASViT, Sec. 3)."""

from __future__ import annotations

import numpy as np

from ...registry import ARCH_SAMPLERS
from ...spaces import Arch, SearchSpace
from ...utils import checks
from .base import ArchSampler


@ARCH_SAMPLERS.register_module()
class SandwichSampler(ArchSampler):
    """Pick the largest, the smallest and random architectures in every step.

    Args:
        num_random: Number of random ones. Defaults to 2, as in S3 and NASViT.

    Raises:
        VitnasError: ``num_random`` is not a whole number from 0.
    """

    largest_first = True

    def __init__(self, num_random: int = 2) -> None:
        self.num_random = checks.whole('num_random', num_random, 0)
        self.num_archs = 2 + num_random

    def sample(self, space: SearchSpace, rng: np.random.Generator, progress: float) -> list[Arch]:
        """Return the largest, the smallest, then the random ones."""
        return [space.largest(), space.smallest(), *(space.sample(rng) for _ in range(self.num_random))]
