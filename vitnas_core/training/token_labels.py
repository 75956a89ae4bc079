"""Token labeling with mixed images: every patch has the label of what it shows (ViT-ResNAS, Sec. 2.4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from mmpretrain.models.heads import LinearClsHead
from mmpretrain.models.utils import ClsDataPreprocessor
from mmpretrain.structures import DataSample
from torch import Tensor, nn

from ..errors import VitnasError
from ..registry import MODELS
from ..utils import checks

TOKEN_SCORE = 'gt_token_score'
"""Field of a sample for the labels of its tokens, (tokens, classes)."""
SWITCHES = ('random', 'halves')
"""Values of ``switch`` of :class:`TokenMix`."""


class Box(NamedTuple):
    """Rows ``top`` to ``bottom`` and columns ``left`` to ``right`` of tokens, without the ends."""

    top: int
    bottom: int
    left: int
    right: int

    @property
    def area(self) -> int:
        """Number of tokens."""
        return (self.bottom - self.top) * (self.right - self.left)


class Mixed(NamedTuple):
    """Images (B, 3, H, W), and labels of images (B, classes) and of tokens (B, tokens, classes)."""

    images: Tensor
    scores: Tensor
    token_scores: Tensor


def draw_box(rng: np.random.Generator, grid: int) -> Box:
    """Draw a box as the published code does: its area first, then its height.

    It never touches the last row or column unless it is as high or wide as the grid. It may be empty.

    Args:
        rng: Random generator.
        grid: Rows and columns of tokens.
    """
    area = int(grid * grid * rng.beta(1.0, 1.0))
    height = int(rng.integers(1, max(1, min(grid, area) - 2) + 1))
    width = area // height
    if width > grid:
        width, height = grid, area // grid
    top, left = (int(rng.integers(max(1, grid - side))) for side in (height, width))
    return Box(top, top + height, left, left + width)


def cut_mix(images: Tensor, scores: Tensor, order: Sequence[int], box: Box, grid: int) -> Mixed:
    """Replace the patches in a box by those of other images; their tokens get the labels of these images.

    Args:
        images: (B, 3, H, W), with whole patches.
        scores: (B, classes).
        order: Index of each image's partner.
        box: Box of tokens.
        grid: Rows and columns of tokens.
    """
    images, partners = images.clone(), images[list(order)]
    rows, columns = (side // grid for side in images.shape[-2:])
    pixels = (..., slice(box.top * rows, box.bottom * rows), slice(box.left * columns, box.right * columns))
    images[pixels] = partners[pixels]
    others = scores[list(order)]
    tokens = scores[:, None, None].repeat(1, grid, grid, 1)
    tokens[:, box.top : box.bottom, box.left : box.right] = others[:, None, None]
    replaced = box.area / grid**2
    return Mixed(images, (1 - replaced) * scores + replaced * others, tokens.flatten(1, 2))


def mix_up(images: Tensor, scores: Tensor, order: Sequence[int], own: float, grid: int) -> Mixed:
    """Blend images; every token gets the blended label.

    Args:
        images: (B, 3, H, W).
        scores: (B, classes).
        order: Index of each image's partner.
        own: Weight of the image itself.
        grid: Rows and columns of tokens.
    """
    blended = [own * one + (1 - own) * one[list(order)] for one in (images, scores)]
    return Mixed(blended[0], blended[1], blended[1][:, None].repeat(1, grid * grid, 1))


class TokenMix:
    """Mix the images of a batch by patch-wise CutMix or Mixup, with labels for the tokens of the last stage.

    Args:
        grid (int): Rows and columns of the last stage's tokens. Defaults to 4, for images of 224 and a stride of 56.
        switch (str): ``'random'`` chooses one of the two for a whole batch (the paper's). ``'halves'`` uses CutMix for
            the first half of every batch and Mixup for the second (the published code's). Defaults to ``'random'``.
        cutmix_prob (float): Probability of CutMix with the random switch. Defaults to 0.5.
        alpha (float): Parameter of Mixup's Beta distribution. Defaults to 0.8.
        smoothing (float): Label smoothing, applied before labels are mixed. Defaults to 0.1.

    Raises:
        VitnasError: An argument is invalid.
    """

    def __init__(
        self,
        grid: int = 4,
        switch: str = 'random',
        cutmix_prob: float = 0.5,
        alpha: float = 0.8,
        smoothing: float = 0.1,
    ) -> None:
        checks.whole('grid', grid)
        checks.one_of('switch', switch, SWITCHES)
        checks.rate('cutmix_prob', cutmix_prob)
        checks.rate('smoothing', smoothing)
        checks.positive('alpha', alpha)
        self.grid, self.switch, self.cutmix_prob, self.alpha, self.smoothing = (
            grid,
            switch,
            cutmix_prob,
            alpha,
            smoothing,
        )

    def __call__(self, images: Tensor, scores: Tensor) -> Mixed:
        """Mix a batch.

        Args:
            images: (B, 3, H, W).
            scores: One-hot labels (B, classes).

        Raises:
            VitnasError: The images do not consist of whole patches.
        """
        if any(side % self.grid for side in images.shape[-2:]):
            raise VitnasError(
                f'images should have {self.grid} × {self.grid} whole patches, but are {tuple(images.shape[-2:])}'
            )
        rng = np.random.default_rng(np.random.randint(2**31))
        smooth = scores * (1 - self.smoothing) + self.smoothing / scores.shape[1]
        if self.switch == 'halves':
            half = len(images) // 2
            parts = [self._cut(images[:half], smooth[:half], rng), self._blend(images[half:], smooth[half:], rng)]
            return Mixed(*(torch.cat(both) for both in zip(*parts)))
        return (self._cut if rng.random() < self.cutmix_prob else self._blend)(images, smooth, rng)

    def _cut(self, images: Tensor, scores: Tensor, rng: np.random.Generator) -> Mixed:
        order = rng.permutation(len(images)).tolist()
        return cut_mix(images, scores, order, draw_box(rng, self.grid), self.grid)

    def _blend(self, images: Tensor, scores: Tensor, rng: np.random.Generator) -> Mixed:
        order = rng.permutation(len(images)).tolist()
        return mix_up(images, scores, order, float(rng.beta(self.alpha, self.alpha)), self.grid)


@MODELS.register_module()
class TokenLabelPreprocessor(ClsDataPreprocessor):
    """mmpretrain's ``ClsDataPreprocessor`` that also mixes training batches and labels their tokens.

    Args:
        token_mix (dict): Arguments of :class:`TokenMix`.
        **kwargs: Arguments of :class:`mmpretrain.models.ClsDataPreprocessor`; ``num_classes`` is required.

    Raises:
        VitnasError: ``batch_augments`` are given, too.
    """

    def __init__(self, token_mix: dict[str, Any], **kwargs: Any) -> None:
        if kwargs.get('batch_augments'):
            raise VitnasError('TokenLabelPreprocessor mixes images by itself, so `batch_augments` should be None')
        super().__init__(**{**kwargs, 'to_onehot': True})
        self.token_mix = TokenMix(**token_mix)

    def forward(self, data: dict, training: bool = False) -> dict:
        """Preprocess a batch; mix it in training."""
        data = super().forward(data, training)
        if training:
            samples: list[DataSample] = data['data_samples']
            mixed = self.token_mix(data['inputs'], torch.stack([sample.gt_score for sample in samples]))
            data['inputs'] = mixed.images
            for sample, score, tokens in zip(samples, mixed.scores, mixed.token_scores):
                sample.set_gt_score(score)
                sample.set_field(tokens, TOKEN_SCORE, dtype=Tensor)
        return data


@MODELS.register_module()
class TokenLabelHead(LinearClsHead):
    """Classify the class token and, in training, every other token.

    For any backbone that returns tokens (B, 1 + N, C) with the class token first, as with ``out_type='raw'``. If
    samples have token labels, their loss is added to that of the class token. Predictions use the class token.

    Args:
        num_classes (int): Number of classes.
        in_channels (int): Width of the tokens.
        **kwargs: Other arguments of :class:`mmpretrain.models.LinearClsHead`; ``loss`` should accept soft labels.
    """

    def __init__(self, num_classes: int, in_channels: int, **kwargs: Any) -> None:
        super().__init__(num_classes, in_channels, **kwargs)
        self.token_fc = nn.Linear(in_channels, num_classes)

    def pre_logits(self, feats: tuple[Tensor, ...]) -> Tensor:
        """Return the class token of the last output."""
        return feats[-1][:, 0]

    def every_layer(self, feats: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        """Return the logits of the class token (B, classes) and of the other tokens (B, N, classes)."""
        return self(feats), self.token_fc(feats[-1][:, 1:])

    def loss(self, feats: tuple[Tensor, ...], data_samples: list[DataSample], **kwargs: Any) -> dict[str, Tensor]:
        """Return the losses of the class token and of the other tokens.

        Raises:
            VitnasError: The labels are for another number of tokens.
        """
        if TOKEN_SCORE not in data_samples[0]:
            return super().loss(feats, data_samples, **kwargs)
        target = torch.stack([getattr(sample, TOKEN_SCORE) for sample in data_samples])
        class_scores, scores = self.every_layer(feats)
        losses = self._get_loss(class_scores, data_samples, **kwargs)
        if scores.shape != target.shape:
            raise VitnasError(
                f'the last stage has {scores.shape[1]} tokens, but labels are for {target.shape[1]}: '
                f'see `grid` of `token_mix`'
            )
        scores, target = scores.flatten(0, 1), target.flatten(0, 1)
        losses['loss_tokens'] = self.loss_module(scores, target, avg_factor=len(scores))
        return losses
