"""What a model of questions looks at: answers, and the attention of the question's first token over the image."""

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
    """How a model came to its answer.

    Args:
        question: The question.
        answers: The likeliest answers and their scores, 0 to 1, the best first.
        maps: Attention of ``[CLS]`` over the cells of the image, mean of the heads, one a layer, (layers, H, W); each
            sums to what is not spent on words.
    """

    question: str
    answers: tuple[tuple[str, float], ...]
    maps: np.ndarray


def read_image(path: str | Path) -> np.ndarray:
    """An image file as RGB, ``uint8`` of shape (H, W, 3).

    Raises:
        VitnasError: There is no such image.
    """
    image = mmcv.imread(str(path), channel_order='rgb') if Path(path).is_file() else None
    if image is None:
        raise VitnasError(f'there is no image {path}')
    return image


@torch.no_grad()
def look(model: VQAModel, pipeline: list[Mapping[str, Any]], image: str | Path, question: str, best: int = 3) -> Look:
    """Ask a model a question about an image file.

    Args:
        model: A trained model, with a backbone.
        pipeline: The transforms of its test images.
        image: The file.
        question: The question.
        best: How many answers. Defaults to 3.

    Raises:
        VitnasError: There is no such image, the model sees none, or its vocabulary knows no word of the question.
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
