"""What a sampler of architectures is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...costs import Cost
from ...spaces import Arch, SearchSpace

SAMPLER = 'arch_sampler'
"""Where a checkpoint holds what the sampler has learned."""

Price = Callable[[Arch, int | tuple[int, int], int], Cost]
"""What an architecture costs at an image size with a head of so many classes: ``ElasticBackbone.price``."""


class ArchSampler:
    """Says which architectures a training step trains.

    A sampler keeps no generator of its own: what it draws is a function of the generator that the loop passes,
    which is the same on every rank and after a resume, and of what it has learned, if it learns: ``state_dict``
    is part of every checkpoint.
    """

    num_archs: int
    """How many architectures a step gets."""

    largest_first = False
    """Whether the first one is always the largest, as in-place distillation needs it."""

    any_space = True
    """Whether it draws from whatever space it is given, e.g. from a part that a warm-up has opened."""

    def bind(self, space: SearchSpace, price: Price, seed: int) -> None:
        """Get ready for a space; called once, when the loop is built.

        Args:
            space: What :meth:`sample` will draw from.
            price: What an architecture costs.
            seed: Of the run, for initial weights.
        """

    def sample(self, space: SearchSpace, rng: np.random.Generator, progress: float) -> list[Arch]:
        """Draw the architectures of one step.

        Args:
            space: Where from.
            rng: The step's generator.
            progress: How much of the training is done, from 0 to 1.
        """
        raise NotImplementedError

    def state_dict(self) -> dict[str, Any]:
        """What it has learned; empty where it learns nothing."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any], resume: bool = False) -> None:
        """Take over what :meth:`state_dict` of another process gave.

        Args:
            state: What it gave.
            resume: Whether its training goes on, too. Defaults to False: only what was learned is wanted.

        Raises:
            CheckpointError: It is of a sampler of another kind.
        """
