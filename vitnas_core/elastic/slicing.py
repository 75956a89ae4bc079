"""Cut weights to the first channels, or to those of a pattern, as views where possible; pad maps to whole cells."""

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor

from .sharing import Channels, take


def prefix(tensor: Tensor, *sizes: int) -> Tensor:
    """The first ``sizes`` entries of the leading axes, as a view; the tensor itself if nothing is cut."""
    for axis, size in enumerate(sizes):
        if size != tensor.shape[axis]:
            tensor = tensor.narrow(axis, 0, size)
    return tensor


def centre(kernels: Tensor, side: int) -> Tensor:
    """The centres of square kernels (…, k, k), as a view; the tensor itself if nothing is cut."""
    margin = (kernels.shape[-1] - side) // 2
    return kernels[..., margin : margin + side, margin : margin + side] if margin else kernels


def pad_to(maps: Tensor, side: int) -> Tensor:
    """Maps (B, C, H, W) with zeros below and on the right, up to whole cells of side × side."""
    bottom, right = (-size % side for size in maps.shape[-2:])
    return F.pad(maps, (0, right, 0, bottom)) if bottom or right else maps


def cut(tensor: Tensor, shape: Sequence[int], axes: Sequence[Channels | None] = ()) -> Tensor:
    """Cut a tensor to the shape of a smaller network, as a view where possible.

    Every axis keeps its first entries. Square kernels (out, in, k, k) whose sides shrink by an even number keep their
    centres.

    Args:
        tensor: The tensor.
        shape: The smaller sizes.
        axes: Channels of the leading axes; None for prefix sharing. Defaults to (): prefix sharing everywhere.
    """
    tensor = take(tensor, *((size, channels) for size, channels in zip(shape, axes)))
    sizes = tuple(tensor.shape)
    if len(sizes) == 4 and sizes[2] == sizes[3] and shape[2] == shape[3] and (sizes[3] - shape[3]) % 2 == 0:
        return centre(prefix(tensor, *shape[:2]), shape[3])
    return prefix(tensor, *shape)
