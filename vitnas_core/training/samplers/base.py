"""Base class of architecture samplers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...costs import Cost
from ...spaces import Arch, SearchSpace

SAMPLER = 'arch_sampler'
"""Key of a checkpoint for the state of the sampler."""

Pricing = Callable[[Arch, int | tuple[int, int] | None, int | None], Cost]
"""From architecture, image size and number of classes to the cost; None for those of the config."""


class ArchSampler(ABC):
    """Pick the architectures of a training step.

    A sampler has no generator of its own. It draws from the one that the loop passes, which is the same on every rank
    and after a resume. A sampler that learns keeps what it learned in ``state_dict``, a part of every checkpoint.
    """

    num_archs: int
    """Number of architectures per step."""

    largest_first = False
    """True if the first one is always the largest, which in-place distillation needs."""

    any_space = True
    """True if it can draw from any space, e.g. from the part that a warm-up has opened."""

    def bind(self, space: SearchSpace, price: Pricing, seed: int) -> None:  # noqa: B027  (most need nothing)
        """Get ready for a space; called once, when the loop is built.

        Args:
            space: The space that :meth:`sample` draws from.
            price: Gives the cost of an architecture.
            seed: Seed of the run, for initial weights.
        """

    @abstractmethod
    def sample(self, space: SearchSpace, rng: np.random.Generator, progress: float) -> list[Arch]:
        """Draw the architectures of one step.

        Args:
            space: The space.
            rng: The generator of the step.
            progress: Progress of the training, from 0 to 1.
        """

    def state_dict(self) -> dict[str, Any]:
        """Return what the sampler has learned; empty if it does not learn."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any], resume: bool = False) -> None:  # noqa: B027  (as above)
        """Load what :meth:`state_dict` returned.

        Args:
            state: The state.
            resume: Whether to load the state of the sampler's own training, too. Defaults to False.

        Raises:
            CheckpointError: The state belongs to another sampler.
        """
