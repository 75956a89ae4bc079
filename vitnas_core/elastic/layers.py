"""Elastic linear layers, convolutions and norms: an active width is a view of the weight, never a copy.

The input width is read from the input; only the output width is set. At full width the parameter
itself is used, so a fixed network shows no trace of elasticity in its profile.

Where the samples of a batch have different widths, layers run at full width, and a ``mask`` says which input channels
each sample has. Linear layers and norms have one: what other layers make of channels that a sample lacks, none reads.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from .masks import keep, masked_layer_norm
from .pooling import GradientPool
from .slicing import centre, prefix


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
        self.mask: Tensor | None = None
        """Which input channels each sample has, (B, in)."""
        self.pool: GradientPool | None = None
        """Where the slices of one pass gather their gradients."""

    def cut(self, in_features: int) -> Tensor:
        """The part of the weight that an input of so many features meets."""
        sizes = self.width, in_features
        return prefix(self.weight, *sizes) if self.pool is None else self.pool.cut(*sizes)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer to (…, in) and return (…, width)."""
        x = keep(x, self.mask)
        return F.linear(x, self.cut(x.shape[-1]), None if self.bias is None else prefix(self.bias, self.width))


class ElasticConv2d(nn.Conv2d):
    """A convolution that uses the first filters and input channels of its weight.

    Args:
        in_channels: Largest number of input channels.
        out_channels: Largest number of filters.
        kernel_size: Side of a filter.
        stride: Pixels from one position to the next. Defaults to 1.
        padding: Zeros around the image. Defaults to 0.
        bias: Whether there is a bias. Defaults to True.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        stride: int = 1,
        padding: int = 0,
        bias: bool = True,
    ) -> None:
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, bias=bias)
        self.width = out_channels
        """The active number of filters."""
        self.pool: GradientPool | None = None
        """Where the slices of one pass gather their gradients."""

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer to (B, in, H, W) and return (B, width, H', W')."""
        sizes = self.width, x.shape[1]
        weight = prefix(self.weight, *sizes) if self.pool is None else self.pool.cut(*sizes)
        return self._conv_forward(x, weight, None if self.bias is None else prefix(self.bias, self.width))


class ElasticDepthwiseConv2d(nn.Conv2d):
    """A depth-wise convolution of the channels that arrive, with the first filters or the centre of them.

    Args:
        channels: Largest number of channels.
        kernel_size: Side of the largest filter, an odd number; the image is padded with half the active one.
        stride: Pixels from one position to the next. Defaults to 1.
        bias: Whether there is a bias. Defaults to True.
    """

    def __init__(self, channels: int, kernel_size: int, stride: int = 1, bias: bool = True) -> None:
        super().__init__(channels, channels, kernel_size, stride, kernel_size // 2, groups=channels, bias=bias)
        self.side = kernel_size
        """The active side of the filters."""

    def forward(self, x: Tensor) -> Tensor:
        """Filter each channel of (B, width, H, W) by itself."""
        width = x.shape[1]
        bias = None if self.bias is None else prefix(self.bias, width)
        weight = centre(prefix(self.weight, width), self.side)
        return F.conv2d(x, weight, bias, self.stride, self.side // 2, groups=width)


class ElasticBatchNorm2d(nn.BatchNorm2d):
    """A batch norm of the channels that arrive, with the first entries of gain, bias and running statistics.

    Statistics that training leaves are those of many architectures: recalibrate them for one before it is scored
    (:func:`~vitnas_core.recalibration.recalibrate`). ``num_batches_tracked`` stays as it is.

    Args:
        channels: Largest width.
    """

    def __init__(self, channels: int) -> None:
        super().__init__(channels)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise (B, width, H, W), by the statistics of the batch while training."""
        tensors = (self.running_mean, self.running_var, self.weight, self.bias)
        mean, var, weight, bias = (None if tensor is None else prefix(tensor, x.shape[1]) for tensor in tensors)
        return F.batch_norm(x, mean, var, weight, bias, self.training, self.momentum or 0.0, self.eps)


class ElasticLayerNorm(nn.LayerNorm):
    """A layer norm over the channels that arrive, with the first entries of gain and bias.

    Args:
        channels: Largest width.
        eps: Added to the variance. Defaults to 1e-5.
    """

    def __init__(self, channels: int, eps: float = 1e-5) -> None:
        super().__init__(channels, eps)
        self.mask: Tensor | None = None
        """Which channels each sample has, (B, channels)."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalise (…, width) over its last axis."""
        if self.mask is not None:
            return masked_layer_norm(x, self.mask, self.weight, self.bias, self.eps)
        width = x.shape[-1]
        return F.layer_norm(x, (width,), prefix(self.weight, width), prefix(self.bias, width), self.eps)


class ElasticImageNorm(nn.LayerNorm):
    """A layer norm over all tokens and channels of an image, with a gain and a bias a channel (NASViT's code).

    Args:
        channels: Largest width.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Normalise (B, N, width), each sample by one mean and one deviation."""
        width = x.shape[-1]
        return F.layer_norm(x, x.shape[1:], eps=self.eps) * prefix(self.weight, width) + prefix(self.bias, width)


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
