"""Elastic linear layers, convolutions and norms: an active width is a view of the weight, never a copy.

The input width is read from the input; only the output width is set. At full width the parameter
itself is used, so a fixed network shows no trace of elasticity in its profile.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def prefix(tensor: Tensor, *sizes: int) -> Tensor:
    """The first ``sizes`` entries of the leading axes, as a view; the tensor itself where nothing is cut."""
    for axis, size in enumerate(sizes):
        if size != tensor.shape[axis]:
            tensor = tensor.narrow(axis, 0, size)
    return tensor


def pad_channels(features: Tensor, channels: int, axis: int) -> Tensor:
    """Zeros behind the active channels up to ``channels``, so that necks and heads of full width take the features."""
    missing = channels - features.shape[axis]
    if missing == 0:
        return features
    shape = list(features.shape)
    shape[axis] = missing
    return torch.cat([features, features.new_zeros(shape)], dim=axis)


class ElasticLinear(nn.Linear):
    """A linear layer that uses the first rows and columns of its weight.

    Args:
        in_features: Largest input width.
        out_features: Largest output width.
        bias: Whether there is a bias. Defaults to True.
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        super().__init__(in_features, out_features, bias)
        self.width = out_features
        """The active output width."""

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer to (…, in) and return (…, width)."""
        weight = prefix(self.weight, self.width, x.shape[-1])
        return F.linear(x, weight, None if self.bias is None else prefix(self.bias, self.width))


class ElasticConv2d(nn.Conv2d):
    """A convolution that uses the first filters and input channels of its weight.

    Args:
        in_channels: Largest number of input channels.
        out_channels: Largest number of filters.
        kernel_size: Side of a filter.
        stride: Pixels from one position to the next. Defaults to 1.
        padding: Zeros around the image. Defaults to 0.
    """

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: int, stride: int = 1, padding: int = 0
    ) -> None:
        super().__init__(in_channels, out_channels, kernel_size, stride, padding)
        self.width = out_channels
        """The active number of filters."""

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer to (B, in, H, W) and return (B, width, H', W')."""
        weight = prefix(self.weight, self.width, x.shape[1])
        return self._conv_forward(x, weight, None if self.bias is None else prefix(self.bias, self.width))


class ElasticDepthwiseConv2d(nn.Conv2d):
    """A depth-wise convolution of the channels that arrive, with the first filters; the image keeps its size.

    Args:
        channels: Largest number of channels.
        kernel_size: Side of a filter, an odd number; the image is padded with kernel_size // 2 zeros.
    """

    def __init__(self, channels: int, kernel_size: int) -> None:
        super().__init__(channels, channels, kernel_size, padding=kernel_size // 2, groups=channels)

    def forward(self, x: Tensor) -> Tensor:
        """Filter each channel of (B, width, H, W) by itself."""
        width = x.shape[1]
        bias = None if self.bias is None else prefix(self.bias, width)
        return F.conv2d(x, prefix(self.weight, width), bias, padding=self.padding, groups=width)


class ElasticLayerNorm(nn.LayerNorm):
    """A layer norm over the channels that arrive, with the first entries of gain and bias.

    Args:
        channels: Largest width.
        eps: Added to the variance. Defaults to 1e-5.
    """

    def __init__(self, channels: int, eps: float = 1e-5) -> None:
        super().__init__(channels, eps)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise (…, width) over its last axis."""
        width = x.shape[-1]
        return F.layer_norm(x, (width,), prefix(self.weight, width), prefix(self.bias, width), self.eps)


class DropPath(nn.Module):
    """Stochastic depth: drop a residual branch for single samples, and scale the kept ones up.

    Args:
        rate: Chance that a sample's branch is dropped. Defaults to 0.
    """

    def __init__(self, rate: float = 0.0) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        """Drop samples of (B, …) while training."""
        if not self.training or self.rate == 0.0:
            return x
        keep = 1.0 - self.rate
        mask = x.new_empty((x.shape[0],) + (1,) * (x.ndim - 1)).bernoulli_(keep)
        return x * mask.div_(keep) if keep > 0.0 else x * mask

    def extra_repr(self) -> str:
        """Show the rate."""
        return f'rate={self.rate}'
