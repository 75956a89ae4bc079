"""Randomness that depends on the step or the sample, not on earlier draws.

Transforms, drop path and mixup draw from the global generators, whose state a resumed training has lost. So
a key (seed, step, rank; or seed, pass, position of a sample) seeds them for one piece of work, and their old
state is restored afterwards.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator

import numpy as np
import torch


@contextlib.contextmanager
def kept() -> Iterator[None]:
    """Restore the global generators of Python, numpy and torch (CPU) afterwards."""
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])


def seed_globals(*key: int) -> None:
    """Seed the global generators of Python, numpy and torch (CPU) by a key; :func:`kept` restores them."""
    words = np.random.SeedSequence(key).generate_state(4)
    random.seed(int(words[0]))
    np.random.seed(int(words[1]))
    torch.default_generator.manual_seed(int(words[2]) << 32 | int(words[3]))


@contextlib.contextmanager
def seeded(*key: int) -> Iterator[None]:
    """Seed the global generators and the GPU's by a key, and restore them afterwards."""
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    with kept(), torch.random.fork_rng(devices):
        seed_step(*key)
        yield


def seed_step(*key: int) -> None:
    """Seed the global generators and the GPU's by a key of four words, which differs from every sample's three."""
    seed_globals(*key)
    if torch.cuda.is_available():
        torch.cuda.manual_seed(torch.default_generator.initial_seed())
