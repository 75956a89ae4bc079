"""Masks of channels, so that architectures of different widths run in one pass."""

from __future__ import annotations

import torch
from torch import Tensor


def keep(x: Tensor, mask: Tensor | None) -> Tensor:
    """Zero the channels that a sample lacks.

    Args:
        x: (B, …, C).
        mask: Mask of the channels of each sample, (B, C); None for all channels.
    """
    return x if mask is None else x * _along(mask, x)


def masked_layer_norm(x: Tensor, mask: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """Layer norm of each sample over its own channels; zeros in the others.

    ViT-ResNAS (Sec. 2.3) calls this recalibrated statistics. The variance is the mean of squared deviations:
    E[x²] − E[x]² would cancel for values far from zero.

    Args:
        x: (B, …, C); values in channels that a sample lacks are ignored.
        mask: Mask of the channels of each sample, (B, C); at least one per sample.
        weight: (C,).
        bias: (C,).
        eps: Added to the variance.
    """
    kept = _along(mask, x)
    count = kept.sum(-1, keepdim=True)
    x = x.to(torch.promote_types(x.dtype, torch.float32))  # as torch's layer norm under autocast
    centred = (x - (x * kept).sum(-1, keepdim=True) / count) * kept
    variance = centred.square().sum(-1, keepdim=True) / count
    return (centred * (variance + eps).rsqrt() * weight + bias) * kept


def _along(mask: Tensor, x: Tensor) -> Tensor:
    """(B, C) → (B, 1, …, C)."""
    return mask.view(len(mask), *(1,) * (x.ndim - 2), -1)
