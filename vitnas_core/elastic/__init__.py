"""Layers that run at any width up to their maximum."""

from .attention import attend
from .importance import Reorder, order_heads, order_hidden
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
from .mbconv import MBConv
from .pooling import GradientPool
from .positions import resize_positions
from .relative import RelativePositions2D, TokenGrid
from .scaling import SwitchableScale
from .sharing import Axes, Channels, Pattern, cyclic_starts, influence_gap, share_block, shares, take, take_last
from .slicing import centre, cut, pad_channels, prefix
from .windows import RelativeBias, Windows, WindowTables, resize_table, zigzag

__all__ = [
    'Axes',
    'Channels',
    'DropPath',
    'ElasticBatchNorm2d',
    'ElasticConv2d',
    'ElasticDepthwiseConv2d',
    'ElasticImageNorm',
    'ElasticLayerNorm',
    'ElasticLinear',
    'GradientPool',
    'MBConv',
    'Pattern',
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
    'keep',
    'masked_layer_norm',
    'order_heads',
    'order_hidden',
    'pad_channels',
    'prefix',
    'resize_positions',
    'resize_table',
    'share_block',
    'shares',
    'take',
    'take_last',
    'zigzag',
]
