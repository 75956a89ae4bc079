"""Channels that only some samples of a batch have: how architectures of different widths share one pass."""

from __future__ import annotations

import torch
from torch import Tensor


def keep(x: Tensor, mask: Tensor | None) -> Tensor:
    """Zero the channels that a sample lacks.

    Args:
        x: (B, …, C).
        mask: Which channels each sample has, (B, C); None: all.
    """
    return x if mask is None else x * _along(mask, x)


def masked_layer_norm(x: Tensor, mask: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """The layer norm of each sample over the channels that it has; zeros in the others.

    What ViT-ResNAS (Sec. 2.3) calls recalibrated statistics. The deviation is taken from the mean, as squares of
    values far from zero would cancel.

    Args:
        x: (B, …, C); what it holds in channels that a sample lacks does not count.
        mask: Which channels each sample has, (B, C); at least one.
        weight: (C,).
        bias: (C,).
        eps: Added to the variance.
    """
    kept = _along(mask, x)
    count = kept.sum(-1, keepdim=True)
    x = x.to(torch.promote_types(x.dtype, torch.float32))  # as torch's own under autocast
    centred = (x - (x * kept).sum(-1, keepdim=True) / count) * kept
    variance = centred.square().sum(-1, keepdim=True) / count
    return (centred * (variance + eps).rsqrt() * weight + bias) * kept


def _along(mask: Tensor, x: Tensor) -> Tensor:
    """(B, C) → (B, 1, …, C)."""
    return mask.view(len(mask), *(1,) * (x.ndim - 2), -1)
