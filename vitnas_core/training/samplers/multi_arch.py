"""Many architectures per step, spread over the options of every dimension (ViT-ResNAS)."""

from __future__ import annotations

import numpy as np

from ...registry import ARCH_SAMPLERS
from ...spaces import Arch, SearchSpace
from ...utils import checks
from .base import ArchSampler


@ARCH_SAMPLERS.register_module()
class MultiArchSampler(ArchSampler):
    """Draw several random architectures per step, each dimension without replacement, as the published code does.

    A step then trains every option of a dimension about equally often. Each architecture by itself has the
    distribution of ``vitnas.UniformSampler``.

    Args:
        num_archs: Number of architectures on all processes together. Defaults to 16, as in the paper.

    Raises:
        VitnasError: ``num_archs`` is not a whole number above 0.
    """

    def __init__(self, num_archs: int = 16) -> None:
        self.num_archs = checks.whole('num_archs', num_archs)

    def sample(self, space: SearchSpace, rng: np.random.Generator, progress: float) -> list[Arch]:
        """Draw the architectures."""
        return space.sample_spread(self.num_archs, rng)
