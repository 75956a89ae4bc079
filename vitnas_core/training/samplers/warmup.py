"""Warm-up: start with the largest architecture and open widths and depths gradually (ViT-ResNAS, App. C)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...errors import VitnasError
from ...registry import ARCH_SAMPLERS
from ...spaces import Arch, SearchSpace
from ...utils import checks
from .base import ArchSampler, Pricing


@ARCH_SAMPLERS.register_module()
class WarmUpSampler(ArchSampler):
    """Let another sampler draw from a growing part of the space, which first holds only the largest options.

    Args:
        sampler: The sampler to wrap, or its config.
        fraction: Fraction of the training after which the whole space is open. Defaults to 0.25.

    Raises:
        VitnasError: ``fraction`` is not above 0 and at most 1, or the sampler cannot draw from a part of a space.
    """

    def __init__(self, sampler: ArchSampler | dict, fraction: float = 0.25) -> None:
        checks.fraction('fraction', fraction)
        self.sampler: ArchSampler = ARCH_SAMPLERS.build(sampler) if isinstance(sampler, dict) else sampler
        if not self.sampler.any_space:
            raise VitnasError(
                f'vitnas.WarmUpSampler opens a space to a sampler that draws from any part of it; '
                f'{type(self.sampler).__name__} does not'
            )
        self.fraction = fraction
        self.num_archs, self.largest_first = self.sampler.num_archs, self.sampler.largest_first

    def bind(self, space: SearchSpace, price: Pricing, seed: int) -> None:
        """Bind the wrapped sampler."""
        self.sampler.bind(space, price, seed)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the wrapped sampler."""
        return self.sampler.state_dict()

    def load_state_dict(self, state: Mapping[str, Any], resume: bool = False) -> None:
        """Load the state of the wrapped sampler."""
        self.sampler.load_state_dict(state, resume)

    def sample(self, space: SearchSpace, rng: np.random.Generator, progress: float) -> list[Arch]:
        """Draw from the open part of the space."""
        opened = min(1.0, progress / self.fraction)
        return self.sampler.sample(space if opened == 1 else space.upper(opened), rng, progress)
