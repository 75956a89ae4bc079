"""Many architectures at once, spread over the options of every dimension (ViT-ResNAS)."""

from __future__ import annotations

import numpy as np

from ...errors import VitnasError
from ...registry import ARCH_SAMPLERS
from ...spaces import Arch, SearchSpace
from .base import ArchSampler


@ARCH_SAMPLERS.register_module()
class MultiArchSampler(ArchSampler):
    """Several random architectures a step; each dimension is drawn without replacement, as the published code does.

    So a step trains every option of a dimension about equally often, while each architecture by itself is drawn as by
    ``vitnas.UniformSampler``.

    Args:
        num_archs: How many, on all processes together. Defaults to 16, the paper's.

    Raises:
        VitnasError: ``num_archs`` is no whole number above 0.
    """

    def __init__(self, num_archs: int = 16) -> None:
        if type(num_archs) is not int or num_archs < 1:
            raise VitnasError(f'`num_archs` should be a whole number above 0, but got {num_archs!r}')
        self.num_archs = num_archs

    def sample(self, space: SearchSpace, rng: np.random.Generator, progress: float) -> list[Arch]:
        """The architectures."""
        return space.sample_spread(self.num_archs, rng)
