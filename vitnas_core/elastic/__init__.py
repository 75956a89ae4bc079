"""Layers that run at any width up to their maximum."""

from .attention import attend
from .layers import (
    DropPath,
    ElasticConv2d,
    ElasticDepthwiseConv2d,
    ElasticLayerNorm,
    ElasticLinear,
    pad_channels,
    prefix,
)
from .positions import resize_positions
from .relative import RelativePositions2D, TokenGrid
from .windows import RelativeBias, Windows, WindowTables, zigzag

__all__ = [
    'DropPath',
    'ElasticConv2d',
    'ElasticDepthwiseConv2d',
    'ElasticLayerNorm',
    'ElasticLinear',
    'RelativeBias',
    'RelativePositions2D',
    'TokenGrid',
    'WindowTables',
    'Windows',
    'attend',
    'pad_channels',
    'prefix',
    'resize_positions',
    'zigzag',
]
