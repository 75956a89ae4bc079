"""Digests that tell whether two searches are the same."""

from __future__ import annotations

import hashlib
from typing import Any

import torch
from torch import nn

from ..datasets.checks import plain_text


def digest_data(data: Any) -> str:
    """Digest of configs and other plain data, the same in every process."""
    return hashlib.sha256(plain_text(data).encode()).hexdigest()[:16]


def digest_weights(model: nn.Module) -> str:
    """Digest of a model's weights; equal names, types, shapes and bits give the same digest."""
    found = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        found.update(f'{name} {tensor.dtype} {tuple(tensor.shape)};'.encode())
        found.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return found.hexdigest()[:16]
