"""What a sampler of architectures is."""

from __future__ import annotations

import numpy as np

from ...spaces import Arch, SearchSpace


class ArchSampler:
    """Says which architectures a training step trains.

    A sampler keeps no state and no generator of its own: what it draws is a function of the generator that
    the loop passes, which is the same on every rank and after a resume.
    """

    num_archs: int
    """How many architectures a step gets."""

    largest_first = False
    """Whether the first one is always the largest, as in-place distillation needs it."""

    def sample(self, space: SearchSpace, rng: np.random.Generator, progress: float) -> list[Arch]:
        """Draw the architectures of one step.

        Args:
            space: Where from.
            rng: The step's generator.
            progress: How much of the training is done, from 0 to 1.
        """
        raise NotImplementedError
