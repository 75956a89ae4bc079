"""Transforms of scope ``vitnas``: single digits that look like those in the scenes."""

from __future__ import annotations

import numpy as np
from mmcv.transforms import BaseTransform

from ..errors import DatasetError
from ..registry import TRANSFORMS
from ..utils import checks
from .scenes import draw_digit, light_colour, make_canvas, place

_LARGEST = 0.7
"""Ratio of the image's side to the side of a scene with equal digits; the largest rotated digit just fits."""


@TRANSFORMS.register_module()
class DrawDigit(BaseTransform):
    """Draw one digit as in the scenes: at a random place on a texture, tilted, in a random size and a light colour.

    Trains a backbone for the scenes on images with one label. The code of the scenes draws the digit.

    **Required Keys:** ``img``, of shape (8, 8, 3), as :class:`Digits` gives it; ``sample_idx`` with a seed.
    **Modified Keys:** ``img``, now of shape (size, size, 3).

    Args:
        size (int): Side of the image. Digits are as large as those in scenes of the height ``size / 0.7``.
            Defaults to 56.
        seed (int, optional): With the sample's index, makes each drawing the same every time, e.g. for held-out
            images. Defaults to None: a new drawing every time.

    Raises:
        DatasetError: If ``size`` or ``seed`` is too small, or ``img`` is not a digit.
    """

    def __init__(self, size: int = 56, seed: int | None = None) -> None:
        self.size = checks.whole('size', size, 32, DatasetError)
        self.seed = None if seed is None else checks.whole('seed', seed, 0, DatasetError)

    def transform(self, results: dict) -> dict:
        """Replace the digit by a drawing of it."""
        digit = results['img']
        if digit.shape != (8, 8, 3) or digit.dtype != np.uint8:
            raise DatasetError(
                f'DrawDigit needs a digit of shape (8, 8, 3) and uint8, but got {digit.shape} and {digit.dtype}'
            )
        source = np.random.randint(2**31) if self.seed is None else (self.seed, results['sample_idx'])
        return {**results, 'img': self._draw(np.random.default_rng(source), digit[:, :, 0])}

    def _draw(self, rng: np.random.Generator, digit: np.ndarray) -> np.ndarray:
        size = (self.size, self.size)
        image, hue = make_canvas(rng, size), rng.random()
        ink = place(rng, draw_digit(rng, digit, int(self.size / _LARGEST)), size)
        image += ink[:, :, None] * (light_colour(rng, hue) - image)
        image += rng.normal(0, rng.uniform(1, 5), image.shape)
        return np.rint(image.clip(0, 255)).astype(np.uint8)

    def __repr__(self) -> str:
        return f'{type(self).__name__}(size={self.size}, seed={self.seed})'
