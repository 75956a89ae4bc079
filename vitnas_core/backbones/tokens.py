"""Output formats of backbones with a class token."""

from __future__ import annotations

from torch import Tensor

from ..elastic import Axis

OUT_TYPES = ('featmap', 'avg_featmap', 'cls_token', 'raw')
"""Valid values of ``out_type``."""


def as_map(tokens: Tensor, size: tuple[int, int]) -> Tensor:
    """Reshape (B, h·w, C) to (B, C, h, w)."""
    return tokens.transpose(1, 2).unflatten(2, size)


def as_tokens(maps: Tensor) -> Tensor:
    """Reshape (B, C, h, w) to (B, h·w, C)."""
    return maps.flatten(2).transpose(1, 2)


def format_tokens(tokens: Tensor, size: tuple[int, int], embed: Axis, out_type: str) -> Tensor:
    """Format tokens (B, 1 + h·w, C), the class token first, as an output of full width.

    Args:
        tokens: The tokens.
        size: (h, w), rows and columns of the patches.
        embed: Axis of the tokens.
        out_type: ``'featmap'`` (B, C, h, w), contiguous; ``'avg_featmap'`` (B, C), the mean over patches;
            ``'cls_token'`` (B, C); or ``'raw'`` (B, 1 + h·w, C).
    """
    if out_type == 'raw':
        return embed.pad(tokens, -1)
    if out_type == 'cls_token':
        return embed.pad(tokens[:, 0], -1)
    if out_type == 'avg_featmap':
        return embed.pad(tokens[:, 1:].mean(1), -1)
    return embed.pad(as_map(tokens[:, 1:], size), 1).contiguous()
