"""Elastic linear layers, convolutions and norms: an active width is a view of the weight, never a copy.

The input width is read from the input; only the output width is set. At full width the parameter
itself is used, so a fixed network shows no trace of elasticity in its profile.

Where the samples of a batch have different widths, layers run at full width, and a ``mask`` says which input channels
each sample has. Linear layers and norms have one: what other layers make of channels that a sample lacks, none reads.

A width uses the first channels, unless ``inputs`` or ``outputs`` say otherwise (:mod:`~vitnas_core.elastic.sharing`).
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from .masks import keep, masked_layer_norm
from .pooling import GradientPool
from .sharing import Axes, Channels, take
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
        self.inputs: Channels | None = None
        """Whose channels arrive."""
        self.outputs: Channels | None = None
        """Whose channels it puts out."""

    def axes(self) -> Axes:
        """Whose channels the axes of each weight are."""
        return {'weight': (self.outputs, self.inputs), 'bias': (self.outputs,)}

    def cut(self, in_features: int) -> Tensor:
        """The part of the weight that an input of so many features meets."""
        if self.pool is not None:
            return self.pool.cut(self.width, in_features)
        return take(self.weight, (self.width, self.outputs), (in_features, self.inputs))

    def cut_bias(self) -> Tensor | None:
        """The part of the bias that the active width has."""
        return None if self.bias is None else take(self.bias, (self.width, self.outputs))

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer to (…, in) and return (…, width)."""
        x = keep(x, self.mask)
        return F.linear(x, self.cut(x.shape[-1]), self.cut_bias())


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
        self.inputs: Channels | None = None
        """Whose channels arrive."""
        self.outputs: Channels | None = None
        """Whose channels it puts out."""

    def axes(self) -> Axes:
        """Whose channels the axes of each weight are."""
        return {'weight': (self.outputs, self.inputs), 'bias': (self.outputs,)}

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer to (B, in, H, W) and return (B, width, H', W')."""
        if self.pool is None:
            weight = take(self.weight, (self.width, self.outputs), (x.shape[1], self.inputs))
        else:
            weight = self.pool.cut(self.width, x.shape[1])
        return self._conv_forward(x, weight, None if self.bias is None else take(self.bias, (self.width, self.outputs)))


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
        self.inputs: Channels | None = None
        """Whose channels arrive."""

    def axes(self) -> Axes:
        """Whose channels the axes of each weight are."""
        return {'weight': (self.inputs,), 'bias': (self.inputs,)}

    def forward(self, x: Tensor) -> Tensor:
        """Filter each channel of (B, width, H, W) by itself."""
        width = x.shape[1]
        bias = None if self.bias is None else take(self.bias, (width, self.inputs))
        weight = centre(take(self.weight, (width, self.inputs)), self.side)
        return F.conv2d(x, weight, bias, self.stride, self.side // 2, groups=width)


class ElasticBatchNorm2d(nn.BatchNorm2d):
    """A batch norm of the channels that arrive, with the first entries of gain, bias and running statistics.

    Statistics that training leaves are those of many architectures: recalibrate them for one before it is scored
    (:func:`~vitnas_core.evaluation.recalibrate`). ``num_batches_tracked`` stays as it is.

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
        self.inputs: Channels | None = None
        """Whose channels arrive."""

    def axes(self) -> Axes:
        """Whose channels the axes of each weight are."""
        return {'weight': (self.inputs,), 'bias': (self.inputs,)}

    def forward(self, x: Tensor) -> Tensor:
        """Normalise (…, width) over its last axis."""
        if self.mask is not None:
            return masked_layer_norm(x, self.mask, self.weight, self.bias, self.eps)
        width = x.shape[-1]
        weight, bias = (take(tensor, (width, self.inputs)) for tensor in (self.weight, self.bias))
        return F.layer_norm(x, (width,), weight, bias, self.eps)


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
