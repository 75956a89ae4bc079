"""Layers between axes: an active width is a view of the weight, or a copy where a cyclic run wraps around.

A layer reads its input width from the input and its output width from the output's axis. At full width it uses the
parameter itself, so that the profile of a fixed network shows no slicing.

In a masked pass, the samples of a batch have different widths and layers run at full width. Norms and linear layers
leave out the channels that a sample lacks. Outputs of other layers in those channels are never read.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import VitnasError
from .axis import Axes, Axis
from .masks import keep, masked_layer_norm
from .pooling import GradientPool
from .sharing import take
from .slicing import centre, prefix


class ElasticLinear(nn.Linear):
    """A linear layer between two axes.

    Args:
        inputs: Axis of the input, or a fixed width.
        outputs: Axis of the output, or a fixed width.
        bias: Whether there is a bias. Defaults to True.
        normed: Whether the input comes from a norm, which already zeroes missing channels. Defaults to False.
    """

    def __init__(self, inputs: int | Axis, outputs: int | Axis, bias: bool = True, normed: bool = False) -> None:
        source, target = Axis.of(inputs), Axis.of(outputs)
        super().__init__(source.most, target.most, bias)
        self.inputs, self.outputs, self.normed = source, target, normed
        self.axes: Axes = {'weight': (target, source), 'bias': (target,)}
        self.pool: GradientPool | None = None
        """Gathers the gradients of the slices of one pass."""

    def cut(self, in_features: int) -> Tensor:
        """The part of the weight for an input width and the active output width."""
        if self.pool is not None:
            return self.pool.cut(self.outputs.width, in_features)
        return take(self.weight, (self.outputs.width, self.outputs.channels), (in_features, self.inputs.channels))

    def cut_bias(self) -> Tensor | None:
        """The part of the bias for the active output width."""
        return None if self.bias is None else take(self.bias, (self.outputs.width, self.outputs.channels))

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer to (…, in) and return (…, width)."""
        if not self.normed:
            x = keep(x, self.inputs.mask)
        return F.linear(x, self.cut(x.shape[-1]), self.cut_bias())


class ElasticConv2d(nn.Conv2d):
    """A convolution between two axes.

    Args:
        inputs: Axis of the input channels, or a fixed number.
        outputs: Axis of the filters, or a fixed number.
        kernel_size: Side of a filter.
        stride: Stride of the convolution. Defaults to 1.
        padding: Width of the zero padding. Defaults to 0.
        bias: Whether there is a bias. Defaults to True.
    """

    def __init__(
        self,
        inputs: int | Axis,
        outputs: int | Axis,
        kernel_size: int,
        stride: int = 1,
        padding: int = 0,
        bias: bool = True,
    ) -> None:
        source, target = Axis.of(inputs), Axis.of(outputs)
        super().__init__(source.most, target.most, kernel_size, stride, padding, bias=bias)
        self.inputs, self.outputs = source, target
        self.axes: Axes = {'weight': (target, source), 'bias': (target,)}
        self.pool: GradientPool | None = None
        """Gathers the gradients of the slices of one pass."""

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer to (B, in, H, W) and return (B, width, H', W')."""
        active = (self.outputs.width, self.outputs.channels)
        if self.pool is None:
            weight = take(self.weight, active, (x.shape[1], self.inputs.channels))
        else:
            weight = self.pool.cut(self.outputs.width, x.shape[1])
        return self._conv_forward(x, weight, None if self.bias is None else take(self.bias, active))


class ElasticDepthwiseConv2d(nn.Conv2d):
    """A depth-wise convolution along an axis, with its largest filters or their centres.

    Args:
        channels: Axis of the channels, or a fixed number.
        kernel_size: Side of the largest filter, an odd number. The padding is half the active side.
        stride: Stride of the convolution. Defaults to 1.
        bias: Whether there is a bias. Defaults to True.
    """

    def __init__(self, channels: int | Axis, kernel_size: int, stride: int = 1, bias: bool = True) -> None:
        axis = Axis.of(channels)
        super().__init__(axis.most, axis.most, kernel_size, stride, kernel_size // 2, groups=axis.most, bias=bias)
        self.axis = axis
        self.axes: Axes = {'weight': (axis,), 'bias': (axis,)}

    def forward(self, x: Tensor, side: int | None = None) -> Tensor:
        """Filter each channel of (B, width, H, W) by itself.

        Args:
            x: Feature maps.
            side: Active side of the filters. Defaults to None: the largest.
        """
        side = self.kernel_size[0] if side is None else side
        active = (x.shape[1], self.axis.channels)
        bias = None if self.bias is None else take(self.bias, active)
        weight = centre(take(self.weight, active), side)
        return F.conv2d(x, weight, bias, self.stride, side // 2, groups=x.shape[1])


def _prefix_axis(channels: int | Axis) -> Axis:
    """Return the axis if every width uses its first channels."""
    axis = Axis.of(channels)
    if axis.channels is not None:
        raise VitnasError(f'this norm has no sharing={axis.channels.pattern.name!r}: it cuts the first channels')
    return axis


class ElasticBatchNorm2d(nn.BatchNorm2d):
    """A batch norm over the channels of its input, with the first entries of gain, bias and running statistics.

    Training mixes the statistics of many architectures: recalibrate them for one before you score it.
    ``num_batches_tracked`` is not updated.

    Args:
        channels: Axis of the channels, or a fixed number; with prefix sharing.

    Raises:
        VitnasError: The axis has another sharing pattern.
    """

    def __init__(self, channels: int | Axis) -> None:
        super().__init__(_prefix_axis(channels).most)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise (B, width, H, W), by the statistics of the batch while training."""
        tensors = (self.running_mean, self.running_var, self.weight, self.bias)
        mean, var, weight, bias = (None if tensor is None else prefix(tensor, x.shape[1]) for tensor in tensors)
        return F.batch_norm(x, mean, var, weight, bias, self.training, self.momentum or 0.0, self.eps)


class ElasticLayerNorm(nn.LayerNorm):
    """A layer norm along an axis.

    Args:
        channels: Axis of the channels, or a fixed number.
        eps: Added to the variance. Defaults to 1e-5.
    """

    def __init__(self, channels: int | Axis, eps: float = 1e-5) -> None:
        axis = Axis.of(channels)
        super().__init__(axis.most, eps)
        self.axis = axis
        self.axes: Axes = {'weight': (axis,), 'bias': (axis,)}

    def forward(self, x: Tensor) -> Tensor:
        """Normalise (…, width) over its last dimension."""
        mask = self.axis.mask
        if mask is not None:
            return masked_layer_norm(x, mask, self.weight, self.bias, self.eps)
        width = x.shape[-1]
        weight, bias = (take(tensor, (width, self.axis.channels)) for tensor in (self.weight, self.bias))
        return F.layer_norm(x, (width,), weight, bias, self.eps)


class ElasticImageNorm(nn.LayerNorm):
    """A layer norm over all tokens and channels of an image, with one gain and bias per channel (NASViT's code).

    Args:
        channels: Axis of the channels, or a fixed number; with prefix sharing.

    Raises:
        VitnasError: The axis has another sharing pattern.
    """

    def __init__(self, channels: int | Axis) -> None:
        super().__init__(_prefix_axis(channels).most)

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
