"""Uniform sampling: every dimension by itself (AutoFormer, Sec. 3.3)."""

from __future__ import annotations

import numpy as np

from ...registry import ARCH_SAMPLERS
from ...spaces import Arch, SearchSpace
from .base import ArchSampler


@ARCH_SAMPLERS.register_module()
class UniformSampler(ArchSampler):
    """One random architecture a step, each dimension drawn uniformly and by itself."""

    num_archs = 1

    def sample(self, space: SearchSpace, rng: np.random.Generator, progress: float) -> list[Arch]:
        """One architecture."""
        return [space.sample(rng)]
