"""Layers that run at any width up to their maximum."""

from .attention import attend
from .importance import Reorder, order_heads, order_hidden
from .layers import (
    DropPath,
    ElasticConv2d,
    ElasticDepthwiseConv2d,
    ElasticLayerNorm,
    ElasticLinear,
)
from .masks import keep, masked_layer_norm
from .pooling import GradientPool
from .positions import resize_positions
from .relative import RelativePositions2D, TokenGrid
from .slicing import pad_channels, prefix
from .windows import RelativeBias, Windows, WindowTables, zigzag

__all__ = [
    'DropPath',
    'ElasticConv2d',
    'ElasticDepthwiseConv2d',
    'ElasticLayerNorm',
    'ElasticLinear',
    'GradientPool',
    'RelativeBias',
    'RelativePositions2D',
    'Reorder',
    'TokenGrid',
    'WindowTables',
    'Windows',
    'attend',
    'keep',
    'masked_layer_norm',
    'order_heads',
    'order_hidden',
    'pad_channels',
    'prefix',
    'resize_positions',
    'zigzag',
]
