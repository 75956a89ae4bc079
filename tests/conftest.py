"""Fixtures for all tests."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from mmengine.registry import DefaultScope

import vitnas_core  # noqa: F401  (before timm and torchvision: it repairs their import)

torch.set_num_threads(1)  # the networks here are tiny: waiting for threads costs more than they save


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _own_scope() -> Iterator[None]:
    """Reset the default scope, which a runner sets and leaves to the next test."""
    yield
    DefaultScope._instance_dict.clear()
