"""Layers that run at any width up to their maximum."""

from .attention import attend
from .axis import Axes, Axis, table
from .importance import Reorder, importance_orders
from .layers import (
    DropPath,
    ElasticBatchNorm2d,
    ElasticConv2d,
    ElasticDepthwiseConv2d,
    ElasticImageNorm,
    ElasticLayerNorm,
    ElasticLinear,
)
from .masks import keep, masked_layer_norm
from .pooling import GradientPool
from .positions import PositionTable, resize_positions
from .relative import RelativePositions2D, TokenGrid
from .scaling import SwitchableScale
from .sharing import PREFIX, Channels, Pattern, cyclic_starts, influence_gap, shares, take
from .slicing import centre, cut, pad_to, prefix
from .windows import RelativeBias, Windows, WindowTables, resize_table, zigzag

__all__ = [
    'Axes',
    'Axis',
    'Channels',
    'DropPath',
    'ElasticBatchNorm2d',
    'ElasticConv2d',
    'ElasticDepthwiseConv2d',
    'ElasticImageNorm',
    'ElasticLayerNorm',
    'ElasticLinear',
    'GradientPool',
    'PREFIX',
    'Pattern',
    'PositionTable',
    'RelativeBias',
    'RelativePositions2D',
    'Reorder',
    'SwitchableScale',
    'TokenGrid',
    'WindowTables',
    'Windows',
    'attend',
    'centre',
    'cut',
    'cyclic_starts',
    'influence_gap',
    'importance_orders',
    'keep',
    'masked_layer_norm',
    'pad_to',
    'prefix',
    'resize_positions',
    'resize_table',
    'shares',
    'table',
    'take',
    'zigzag',
]
