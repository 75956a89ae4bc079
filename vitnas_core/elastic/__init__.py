"""Layers that run at any width up to their maximum."""

from .layers import (
    DropPath,
    ElasticConv2d,
    ElasticDepthwiseConv2d,
    ElasticLayerNorm,
    ElasticLinear,
    pad_channels,
    prefix,
)
from .relative import RelativePositions2D, TokenGrid, attend

__all__ = [
    'DropPath',
    'ElasticConv2d',
    'ElasticDepthwiseConv2d',
    'ElasticLayerNorm',
    'ElasticLinear',
    'RelativePositions2D',
    'TokenGrid',
    'attend',
    'pad_channels',
    'prefix',
]
