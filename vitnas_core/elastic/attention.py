"""Attention: the one place where the kernel is chosen."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def attend(
    q: Tensor, k: Tensor, v: Tensor, drop: float = 0.0, scale: float | None = None, bias: Tensor | None = None
) -> Tensor:
    """Softmax attention, fused where torch can.

    A CPU has no fused kernel for a trainable bias. Torch's fallback is slower than the explicit products here
    (``tools/benchmarks/foundation.py windows``).

    Args:
        q: Queries (B, heads, N, d). ``k`` and ``v`` likewise.
        k: Keys.
        v: Values.
        drop: Dropout of the attention weights. Defaults to 0.
        scale: Factor of the scores. Defaults to None: d^-0.5.
        bias: Added to the scores, (heads, N, N). Defaults to None: no bias.
    """
    learns = bias is not None and bias.requires_grad and torch.is_grad_enabled() and not torch.jit.is_tracing()
    if bias is None or not learns or q.device.type != 'cpu':
        mask = None if bias is None else bias[None].to(q.dtype)  # a CPU fuses only four axes
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=drop, scale=scale)
    scores = (q * (q.shape[-1] ** -0.5 if scale is None else scale)) @ k.mT
    weights = scores.add_(bias).softmax(-1)
    return (F.dropout(weights, drop) if drop else weights) @ v
