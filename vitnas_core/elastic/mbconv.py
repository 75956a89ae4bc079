"""MBConv: an inverted residual block, elastic in width, kernel and expansion (MobileNetV2; AlphaNet; NASViT)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from ..costs.mbconv import hidden_width, squeezed_width
from .importance import Reorder
from .layers import DropPath, ElasticBatchNorm2d, ElasticConv2d, ElasticDepthwiseConv2d


class SqueezeExcite(nn.Module):
    """Channels weighed by a gate that sees their means; ReLU inside, a hard sigmoid outside.

    Args:
        channels: Largest width.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.reduce = ElasticConv2d(channels, squeezed_width(channels), 1)
        self.expand = ElasticConv2d(squeezed_width(channels), channels, 1)

    def set_width(self, channels: int) -> None:
        """Activate a width."""
        self.reduce.width, self.expand.width = squeezed_width(channels), channels

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) → the same."""
        return x * F.hardsigmoid(self.expand(F.relu(self.reduce(x.mean((2, 3), keepdim=True)))))


class MBConv(nn.Module):
    """1 × 1 expansion, depth-wise convolution, 1 × 1 projection, each with a batch norm, and always a residual.

    Where the size is halved, the residual is the mean over 2 × 2 pixels; at an odd side a row of zeros is added at
    both ends and counts. Where the width changes, it passes a 1 × 1 convolution.

    Args:
        in_channels: Largest input width.
        out_channels: Largest output width.
        kernel_size: Largest side of the depth-wise filters.
        expand_ratio: Largest ratio of hidden to input channels; 1: there is no expansion.
        stride: Of the depth-wise convolution, 1 or 2.
        se: Whether there is squeeze and excitation.
        resized: Whether the width may change.
        drop_path: Chance that a sample skips the block. Defaults to 0.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        expand_ratio: int,
        stride: int,
        se: bool,
        resized: bool,
        drop_path: float = 0.0,
    ) -> None:
        super().__init__()
        hidden = hidden_width(in_channels, expand_ratio)
        self.stride = stride
        if expand_ratio != 1:
            self.expand = ElasticConv2d(in_channels, hidden, 1, bias=False)
            self.expand_bn = ElasticBatchNorm2d(hidden)
        self.depthwise = ElasticDepthwiseConv2d(hidden, kernel_size, stride, bias=False)
        self.depthwise_bn = ElasticBatchNorm2d(hidden)
        self.se = SqueezeExcite(hidden) if se else nn.Identity()
        self.project = ElasticConv2d(hidden, out_channels, 1, bias=False)
        self.project_bn = ElasticBatchNorm2d(out_channels)
        self.shortcut = ElasticConv2d(in_channels, out_channels, 1, bias=False) if resized else None
        self.resizes = resized
        """Whether the active widths differ."""
        self.drop_path = DropPath(drop_path)

    def set_choice(self, in_channels: int, out_channels: int, kernel_size: int, expand_ratio: int) -> None:
        """Activate widths, a kernel and an expansion."""
        hidden = hidden_width(in_channels, expand_ratio)
        if hasattr(self, 'expand'):
            self.expand.width = hidden
        if isinstance(self.se, SqueezeExcite):
            self.se.set_width(hidden)
        self.depthwise.side = kernel_size
        self.project.width = out_channels
        self.resizes = in_channels != out_channels
        if self.shortcut is not None:
            self.shortcut.width = out_channels

    def importance_orders(self) -> list[Reorder]:
        """None: its channels have batch statistics, and stay."""
        return []

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) → (B, C', H / stride, W / stride), sides rounded up."""
        out = F.silu(self.expand_bn(self.expand(x))) if hasattr(self, 'expand') else x
        out = self.se(F.silu(self.depthwise_bn(self.depthwise(out))))
        out = self.drop_path(self.project_bn(self.project(out)))
        if self.stride == 2:
            x = F.avg_pool2d(x, 2, padding=(x.shape[2] % 2, x.shape[3] % 2))
        return out + (self.shortcut(x) if self.resizes and self.shortcut is not None else x)
