"""The simple feature pyramid: several scales from one map of a plain vision transformer (ViTDet, arXiv 2203.16527)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch.nn.functional as F
from mmengine.model import BaseModule
from torch import Tensor, nn

from ..errors import VitnasError
from ..registry import MODELS

_SCALES = (4.0, 2.0, 1.0, 0.5)


@MODELS.register_module()
class SimpleFeaturePyramid(BaseModule):
    """Resize the last map to several scales, then apply 1 × 1 and 3 × 3 convolutions with layer norms (Sec. 3).

    Deconvolutions enlarge the map, max pooling shrinks it. With a backbone of stride 16, the outputs have strides 4, 8,
    16, 32, and 64 by pooling. There is no top-down path and no FPN after it.

    Args:
        in_channels: Channels of the last map. In a list of channels, only the last one counts.
        out_channels: Channels of every output. Defaults to 256.
        num_outs: Number of outputs; those beyond the scales are every second pixel of the one before. Defaults to 5.
        scales: Powers of two by which the map grows. Defaults to (4, 2, 1, 0.5).
        hidden_channels: Output channels of each deconvolution. Defaults to None: half of its input channels, as in
            ViTDet. A fixed number keeps every layer but the first independent of the backbone's width. A searchable
            backbone needs that to be extracted.
        init_cfg: mmengine's initialization config. Defaults to None.

    Raises:
        VitnasError: A scale is not a power of two, or there are fewer outputs than scales.
    """

    def __init__(
        self,
        in_channels: int | Sequence[int],
        out_channels: int = 256,
        num_outs: int = 5,
        scales: Sequence[float] = _SCALES,
        hidden_channels: int | None = None,
        init_cfg: dict | None = None,
    ) -> None:
        super().__init__(init_cfg)
        if not scales or any(scale <= 0 or not math.log2(scale).is_integer() for scale in scales):
            raise VitnasError(f'`scales` of SimpleFeaturePyramid should be powers of two, but got {scales}')
        if num_outs < len(scales):
            raise VitnasError(f'`num_outs` should be at least {len(scales)}, as many as scales, but got {num_outs}')
        self.num_outs, self.scales = num_outs, tuple(scales)
        width = in_channels if isinstance(in_channels, int) else in_channels[-1]
        self.resizes, self.convs = nn.ModuleList(), nn.ModuleList()
        for scale in scales:
            resize, channels = _resize(width, scale, hidden_channels)
            self.resizes.append(resize)
            self.convs.append(
                nn.Sequential(
                    nn.Conv2d(channels, out_channels, 1, bias=False),
                    LayerNorm2d(out_channels),
                    nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False),
                    LayerNorm2d(out_channels),
                )
            )

    def forward(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Maps of all scales from the last input (B, C, H, W)."""
        x = inputs[-1]
        # mmcv's RoIAlign ignores strides, but the layer norm does not leave contiguous (B, C, H, W) memory.
        outs = [conv(resize(x)).contiguous() for resize, conv in zip(self.resizes, self.convs)]
        while len(outs) < self.num_outs:
            outs.append(F.max_pool2d(outs[-1], 1, stride=2))
        return tuple(outs)


class LayerNorm2d(nn.LayerNorm):
    """Layer norm over the channels of each pixel."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels, eps=1e-6)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) → the same shape."""
        x = F.layer_norm(x.permute(0, 2, 3, 1), self.normalized_shape, self.weight, self.bias, self.eps)
        return x.permute(0, 3, 1, 2)


def _resize(width: int, scale: float, hidden: int | None) -> tuple[nn.Module, int]:
    """The layer that makes a map ``scale`` times as large, and its output channels."""
    if scale < 1:
        return nn.MaxPool2d(round(1 / scale), ceil_mode=True), width  # ceil_mode keeps an odd last row
    layers: list[nn.Module] = []
    for i in range(int(math.log2(scale))):
        if i:
            layers += [LayerNorm2d(width), nn.GELU()]
        narrower = hidden or width // 2
        layers.append(nn.ConvTranspose2d(width, narrower, 2, stride=2))
        width = narrower
    return nn.Sequential(*layers), width
