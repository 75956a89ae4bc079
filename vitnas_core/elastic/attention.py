"""Attention: the one place where the kernel is chosen."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def attend(
    q: Tensor, k: Tensor, v: Tensor, drop: float = 0.0, scale: float | None = None, bias: Tensor | None = None
) -> Tensor:
    """Softmax attention, fused where that is faster.

    With a bias on a CPU it is not: torch has no fused kernel there that gives the bias a gradient, and for windows the
    one without takes longer than the products written out (``tools/benchmarks/foundation.py windows``).

    Args:
        q: Queries (B, heads, N, d). ``k`` and ``v`` likewise.
        k: Keys.
        v: Values.
        drop: Dropout of the attention weights. Defaults to 0.
        scale: What scores are multiplied by. Defaults to None: d^-0.5.
        bias: Added to the scores, broadcast to (B, heads, N, N). Defaults to None: nothing.
    """
    if bias is None or q.device.type != 'cpu':
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=drop, scale=scale)
    scores = (q * (q.shape[-1] ** -0.5 if scale is None else scale)) @ k.mT
    weights = scores.add_(bias).softmax(-1)
    return (F.dropout(weights, drop) if drop else weights) @ v
