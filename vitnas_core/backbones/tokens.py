"""What a backbone with a class token returns of its tokens."""

from __future__ import annotations

from torch import Tensor

from ..elastic import Channels, pad_channels

OUT_TYPES = ('featmap', 'avg_featmap', 'cls_token', 'raw')
"""What ``out_type`` may be."""


def as_map(tokens: Tensor, size: tuple[int, int]) -> Tensor:
    """(B, h·w, C) → (B, C, h, w)."""
    return tokens.transpose(1, 2).unflatten(2, size)


def as_tokens(maps: Tensor) -> Tensor:
    """(B, C, h, w) → (B, h·w, C)."""
    return maps.flatten(2).transpose(1, 2)


def format_tokens(
    tokens: Tensor, size: tuple[int, int], channels: int, out_type: str, shared: Channels | None = None
) -> Tensor:
    """Tokens (B, 1 + h·w, C), the class token first, as an output of the full width.

    Args:
        tokens: The tokens.
        size: (h, w).
        channels: The full width.
        out_type: ``'featmap'`` (B, C, h, w), contiguous; ``'avg_featmap'`` (B, C), the mean over patches;
            ``'cls_token'`` (B, C); or ``'raw'`` (B, 1 + h·w, C).
        shared: Whose the active channels are. Defaults to None: the first ones are active.
    """
    if out_type == 'raw':
        return pad_channels(tokens, channels, -1, shared)
    if out_type == 'cls_token':
        return pad_channels(tokens[:, 0], channels, -1, shared)
    if out_type == 'avg_featmap':
        return pad_channels(tokens[:, 1:].mean(1), channels, -1, shared)
    return pad_channels(as_map(tokens[:, 1:], size), channels, 1, shared).contiguous()
