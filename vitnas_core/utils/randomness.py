"""Randomness as a function of where one is, not of what was drawn before.

Transforms, drop path and mixup draw from the global generators, whose state a resumed training cannot have
unless it is made again. So a key (seed, step, rank; or seed, pass, position of a sample) seeds them for the
length of one piece of work, and what they were is put back.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator

import numpy as np
import torch


@contextlib.contextmanager
def kept() -> Iterator[None]:
    """Put the global generators of Python, numpy and torch (CPU) back afterwards."""
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])


def seed_globals(*key: int) -> None:
    """Seed the global generators of Python, numpy and torch (CPU) by a key; :func:`kept` puts them back."""
    words = np.random.SeedSequence(key).generate_state(4)
    random.seed(int(words[0]))
    np.random.seed(int(words[1]))
    torch.default_generator.manual_seed(int(words[2]) << 32 | int(words[3]))


@contextlib.contextmanager
def seeded(*key: int) -> Iterator[None]:
    """Seed the global generators, a GPU's own too, by a key, and put them back afterwards."""
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    with kept(), torch.random.fork_rng(devices):
        seed_step(*key)
        yield


def seed_step(*key: int) -> None:
    """Seed the global generators, a GPU's own too, by a key of four words: samples have three."""
    seed_globals(*key)
    if torch.cuda.is_available():
        torch.cuda.manual_seed(torch.default_generator.initial_seed())
