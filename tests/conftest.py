"""What every test can use."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from mmengine.registry import DefaultScope

import vitnas_core  # noqa: F401  (before timm and torchvision: it mends their import)

torch.set_num_threads(1)  # the networks here are tiny: threads that wait for each other cost more than they give


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _own_scope() -> Iterator[None]:
    """A runner sets the scope in which types without one are looked up, and leaves it to the next test."""
    yield
    DefaultScope._instance_dict.clear()
