"""The VQA model: backbone, token neck, text encoder, fusion, head."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from mmengine.model import BaseModel, BaseModule
from timm.layers import build_sincos2d_pos_embed
from torch import Tensor, nn

from vitnas_core.errors import VitnasError
from vitnas_core.registry import MODELS

from .answers import read_answers, soft_targets
from .bert import EPS, Question, dense


@MODELS.register_module()
class TokenNeck(BaseModule):
    """Turn the last feature map of a backbone into tokens with positions.

    Args:
        in_channels: Channels of the feature map; ``'auto'`` in configs.
        out_channels: Width of the tokens. Defaults to 768.
        drop_rate: Dropout. Defaults to 0.1.
        init_cfg: mmengine's initialization config. Defaults to None.
    """

    def __init__(
        self, in_channels: int, out_channels: int = 768, drop_rate: float = 0.1, init_cfg: dict | None = None
    ) -> None:
        super().__init__(init_cfg)
        if out_channels % 4:
            raise VitnasError(f'out_channels of TokenNeck should be a multiple of 4, but got {out_channels}')
        self.proj = dense(in_channels, out_channels)
        self.norm = nn.LayerNorm(out_channels, EPS)
        self.drop_rate = drop_rate

    def forward(self, maps: Sequence[Tensor]) -> Tensor:
        """Feature maps, the last one (B, C, H, W) → tokens (B, H · W, D), row by row."""
        x = maps[-1]
        if x.ndim != 4:
            raise VitnasError(f'TokenNeck should be given maps (B, C, H, W), but got {tuple(x.shape)}; see out_type')
        tokens = self.norm(self.proj(x.flatten(2).transpose(1, 2)))
        places = build_sincos2d_pos_embed(list(x.shape[-2:]), tokens.shape[-1], device=x.device)
        return F.dropout(tokens + places.to(tokens), self.drop_rate, self.training)


@MODELS.register_module()
class VQAHead(BaseModule):
    """Score every answer of a list; train with soft targets.

    Args:
        answers: JSON file with the list of answers; ``projects/vqa/tools/vqa_answers.py`` makes it.
        num_answers: Number of answers. Defaults to 3129.
        width: Width of the tokens. Defaults to 768.
        init_cfg: mmengine's initialization config. Defaults to None.
    """

    def __init__(self, answers: str, num_answers: int = 3129, width: int = 768, init_cfg: dict | None = None) -> None:
        super().__init__(init_cfg)
        self._file, self.num_answers = answers, num_answers
        self.mlp = nn.Sequential(
            dense(width, 2 * width), nn.GELU(), nn.LayerNorm(2 * width, EPS), dense(2 * width, num_answers)
        )

    @functools.cached_property
    def answers(self) -> list[str]:
        """The answers, in the order of the scores."""
        return read_answers(self._file, self.num_answers)

    @functools.cached_property
    def _index(self) -> dict[str, int]:
        return {answer: i for i, answer in enumerate(self.answers)}

    def targets(self, answers: Sequence[Sequence[str]], weights: Sequence[Sequence[float]]) -> Tensor:
        """Build the soft targets, (B, answers), from people's answers; answers outside the list are ignored."""
        targets = torch.zeros(len(answers), self.num_answers)
        for row, given, fractions in zip(targets, answers, weights):
            for answer, value in soft_targets(given, fractions).items():
                if answer in self._index:
                    row[self._index[answer]] = value
        return targets

    def forward(self, x: Tensor) -> Tensor:
        """The first tokens of the questions, (B, D) → scores before the sigmoid, (B, answers)."""
        return self.mlp(x)

    def loss(self, x: Tensor, targets: Tensor) -> Tensor:
        """Compute the binary cross-entropy, summed over answers, averaged over questions."""
        return F.binary_cross_entropy_with_logits(self(x), targets, reduction='sum') / len(x)


@MODELS.register_module()
class MatchHead(BaseModule):
    """Tell whether a question belongs to an image.

    Args:
        width: Width of the tokens. Defaults to 768.
        loss_weight: Weight of its loss. Defaults to 1.
        init_cfg: mmengine's initialization config. Defaults to None.
    """

    def __init__(self, width: int = 768, loss_weight: float = 1.0, init_cfg: dict | None = None) -> None:
        super().__init__(init_cfg)
        self.fc, self.loss_weight = dense(width, 1), loss_weight

    def loss(self, x: Tensor, matched: Tensor) -> Tensor:
        """Compute the binary cross-entropy of first tokens (B, D); ``matched`` (B, ) is True for matching pairs."""
        return self.loss_weight * F.binary_cross_entropy_with_logits(self.fc(x)[:, 0], matched.to(x))


@MODELS.register_module()
class VQAModel(BaseModel):
    """VQA model of S3's paper (App. C): SOHO without its visual dictionary.

    Args:
        text: The text encoder, e.g. ``dict(type='vitnas.BertEncoder', …)``.
        fusion: The cross-modal transformer, e.g. ``dict(type='vitnas.FusionTransformer', …)``.
        head: The answer head, e.g. ``dict(type='vitnas.VQAHead', …)``.
        backbone: Any backbone that returns feature maps. Defaults to None: answer from the question alone.
        neck: Turns feature maps into tokens, e.g. ``dict(type='vitnas.TokenNeck', …)``.
        match: A second head, e.g. ``dict(type='vitnas.MatchHead', …)``. It sees each question with another image, too,
            and learns to tell the pairs apart. Defaults to None.
        data_preprocessor: Defaults to mmpretrain's ``MultiModalDataPreprocessor`` without arguments.
        init_cfg: mmengine's initialization config. Defaults to None.

    Raises:
        VitnasError: ``backbone`` and ``neck`` are not given together, or ``match`` is given without them.
    """

    def __init__(
        self,
        text: dict,
        fusion: dict,
        head: dict,
        backbone: dict | None = None,
        neck: dict | None = None,
        match: dict | None = None,
        data_preprocessor: dict | None = None,
        init_cfg: dict | None = None,
    ) -> None:
        super().__init__({'type': 'mmpretrain.MultiModalDataPreprocessor', **(data_preprocessor or {})}, init_cfg)
        if (backbone is None) != (neck is None) or (backbone is None and match is not None):
            raise VitnasError('VQAModel should have a backbone with a neck, or neither of them and no match')
        configs = (backbone, neck, text, fusion, head, match)
        built: list[Any] = [None if config is None else MODELS.build(config) for config in configs]
        self.backbone, self.neck, self.text, self.fusion, self.head, self.match = built

    def extract_feat(self, images: Tensor) -> Tensor | None:
        """Images (B, 3, H, W) → their tokens (B, M, D); None without a backbone."""
        return None if self.backbone is None else self.neck(self.backbone(images))

    def forward(self, images: Tensor, data_samples: Sequence[Any] | None = None, mode: str = 'tensor') -> Any:
        """Compute losses, predictions or raw scores.

        Args:
            images: The images, (B, 3, H, W).
            data_samples: One sample per image, with its ``question``: words, token ids, or a list of them in training.
            mode: ``'loss'``, ``'predict'`` or ``'tensor'``.

        Returns:
            Losses; the samples with ``pred_answer`` and ``pred_score``; or scores before the sigmoid. Without
            ``data_samples``, the raw output is the image tokens.
        """
        if data_samples is None:
            if mode == 'tensor' and self.backbone is not None:
                return self.extract_feat(images)
            raise VitnasError('VQAModel should be given data_samples, each with a question')
        if mode == 'loss':
            return self.loss(images, data_samples)
        questions = [sample.question for sample in data_samples]
        if any(isinstance(question, (list, tuple)) for question in questions):
            raise VitnasError(
                'several questions per image are for training; remove questions_per_image from val and test'
            )
        scores = self.head(self.first_tokens(images, questions))
        if mode == 'tensor':
            return scores
        best = scores.sigmoid().max(1)
        for sample, value, index in zip(data_samples, best.values.tolist(), best.indices.tolist()):
            sample.set_field(self.head.answers[index], 'pred_answer')
            sample.set_field(value, 'pred_score')
        return data_samples

    def first_tokens(self, images: Tensor, questions: Sequence[Question]) -> Tensor:
        """Return the fused first token ``[CLS]`` of each question, (B, D)."""
        return self.fusion(*self.text(questions), self.extract_feat(images))[:, 0]

    def loss(self, images: Tensor, data_samples: Sequence[Any]) -> dict[str, Tensor]:
        """Compute the loss of the answers and, with ``match``, of telling pairs apart."""
        images_of, questions, answers, weights = _flatten(data_samples)
        text, mask = self.text(questions)
        tokens = self.extract_feat(images)
        owners = torch.tensor(images_of, device=text.device)
        if self.match is not None and len(images) > 1:  # every question with another image, too
            others = (owners + int(torch.randint(1, len(images), ()))) % len(images)
            names = [sample.get('img_path', i) for i, sample in enumerate(data_samples)]
            differ = [names[one] != names[two] for one, two in zip(images_of, others.tolist())]
            keep = torch.tensor(differ, device=text.device)  # an image with many questions may be there twice
            owners = torch.cat([owners, others[keep]])
            text, mask = torch.cat([text, text[keep]]), torch.cat([mask, mask[keep]])
        first = self.fusion(text, mask, None if tokens is None else tokens[owners])[:, 0]
        count = len(questions)
        losses = {'loss_answer': self.head.loss(first[:count], self.head.targets(answers, weights).to(first))}
        if self.match is not None:
            losses['loss_match'] = self.match.loss(first, torch.arange(len(first), device=first.device) < count)
        return losses


def _flatten(data_samples: Sequence[Any]) -> tuple[list[int], list[Any], list[Any], list[Any]]:
    """Flatten the questions of all images: image index, words, answers and weights of answers.

    Raises:
        VitnasError: A sample has no answers.
    """
    found: tuple[list[int], list[Any], list[Any], list[Any]] = ([], [], [], [])
    for i, sample in enumerate(data_samples):
        if 'gt_answer' not in sample:
            raise VitnasError('to train, data samples should have gt_answer; is ann_file of the dataset given?')
        parts = [sample.question, sample.gt_answer, sample.gt_answer_weight]
        if not isinstance(sample.question, (list, tuple)):
            parts = [[part] for part in parts]
        found[0].extend([i] * len(parts[0]))
        for whole, part in zip(found[1:], parts):
            whole.extend(part)
    return found
