"""One architecture in every step: a subnet trained alone with the supernet's weights and recipe."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ... import zoo
from ...registry import ARCH_SAMPLERS
from ...spaces import Arch, SearchSpace
from .base import ArchSampler


@ARCH_SAMPLERS.register_module()
class FixedSampler(ArchSampler):
    """The same architecture in every step.

    Args:
        arch: A zoo name, the path of an architecture file, or the data.
    """

    num_archs = 1
    any_space = False

    def __init__(self, arch: Arch | Mapping[str, Any] | str | Path) -> None:
        self.arch = zoo.load_arch(arch)

    def sample(self, space: SearchSpace, rng: np.random.Generator, progress: float) -> list[Arch]:
        """The architecture; nothing is drawn."""
        return [self.arch]
