"""Uniform sampling (AutoFormer, Sec. 3.3)."""

from __future__ import annotations

import numpy as np

from ...registry import ARCH_SAMPLERS
from ...spaces import Arch, SearchSpace
from .base import ArchSampler


@ARCH_SAMPLERS.register_module()
class UniformSampler(ArchSampler):
    """Draw one random architecture per step, each dimension uniformly and independently."""

    num_archs = 1

    def sample(self, space: SearchSpace, rng: np.random.Generator, progress: float) -> list[Arch]:
        """Draw one architecture."""
        return [space.sample(rng)]
