"""Attention of a VQA model: from the question's first token to the image, with the model's answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mmcv
import numpy as np
import torch
from mmengine.dataset import Compose, default_collate
from mmengine.registry import TRANSFORMS
from torch import Tensor

from vitnas_core.errors import VitnasError

from .model import VQAModel


@dataclass(frozen=True)
class Look:
    """A model's answers to one question, and its attention to the image.

    Args:
        question: The question.
        answers: The likeliest answers with their scores, 0 to 1, best first.
        maps: Attention from ``[CLS]`` to the image cells, averaged over heads, one map per layer, (layers, H, W). Words
            get the rest of the attention.
    """

    question: str
    answers: tuple[tuple[str, float], ...]
    maps: np.ndarray


def read_image(path: str | Path) -> np.ndarray:
    """Read an image file as RGB, ``uint8`` of shape (H, W, 3).

    Raises:
        VitnasError: The file is missing, or no image.
    """
    image = mmcv.imread(str(path), channel_order='rgb') if Path(path).is_file() else None
    if image is None:
        raise VitnasError(f'there is no image {path}')
    return image


@torch.no_grad()
def look(model: VQAModel, pipeline: list[Mapping[str, Any]], image: str | Path, question: str, best: int = 3) -> Look:
    """Ask a model a question about an image file.

    Args:
        model: A trained model with a backbone.
        pipeline: The transforms of its test images.
        image: The image file.
        question: The question.
        best: Number of answers. Defaults to 3.

    Raises:
        VitnasError: The image is missing, the model has no backbone, or its vocabulary knows no word of the question.
    """
    if model.backbone is None:
        raise VitnasError('the model has no backbone: it answers without looking at the image')
    read_image(image)
    steps = Compose([TRANSFORMS.build(dict(step)) for step in pipeline])
    batch = default_collate([steps({'img_path': str(image), 'question': question, 'question_id': 0})])
    data = model.eval().data_preprocessor(batch)
    grid: list[int] = []
    weights: list[Tensor] = []
    hooks = [model.neck.register_forward_pre_hook(lambda _, inputs: grid.extend(inputs[0][-1].shape[-2:]))]
    for layer in model.fusion.layers:
        hooks.append(layer.register_forward_pre_hook(lambda layer, inputs: weights.append(layer.weights(*inputs))))
    try:
        scores = model(**data, mode='tensor')[0].sigmoid()
    finally:
        for hook in hooks:
            hook.remove()
    cells = grid[0] * grid[1]
    maps = torch.stack([weight[0, :, 0, -cells:].mean(0) for weight in weights]).unflatten(-1, grid)
    top = scores.topk(min(best, len(scores)))
    answers = tuple((model.head.answers[i], value) for value, i in zip(top.values.tolist(), top.indices.tolist()))
    return Look(question, answers, maps.cpu().numpy())
