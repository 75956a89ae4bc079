"""What every test can use."""

import numpy as np
import pytest
import torch

import vitnas_core  # noqa: F401  (before timm and torchvision: it mends their import)

torch.set_num_threads(1)  # the networks here are tiny: threads that wait for each other cost more than they give


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)
