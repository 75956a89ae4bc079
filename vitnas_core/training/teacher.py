"""A trained network outside the model, from which the largest architecture learns (NASViT, Sec. 2; LeViT)."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from mmengine.registry import MODELS as MM_MODELS
from torch import Tensor, nn

from ..backbones.base import PRETRAINED
from ..checkpoints import load_weights
from ..errors import VitnasError
from ..randomness import kept
from ..registry import MODELS
from .distillation import precise


@MODELS.register_module()
class Teacher(nn.Module):
    """What one or several classifiers think of a batch: the mean of their probabilities.

    They see the batch as the model gets it, so they must expect images of that size, normalised in that way. They
    are always in test mode, learn nothing and are no part of the model or its checkpoints.

    Args:
        models: The config of a classifier of any toolbox, or a list of them, e.g.
            ``dict(type='mmpretrain.TimmClassifier', model_name='tf_efficientnet_b5', pretrained=True)``. Its weights
            are its own business (timm's ``pretrained``, mm's ``init_cfg``), or those of a file that the key
            ``checkpoint`` beside ``type`` names, which must hold all of them.
        sharpness: Logits are multiplied by it before the softmax. Defaults to 1; the published code of NASViT has 5.

    Raises:
        VitnasError: There is no model, or ``sharpness`` is not above 0.
        CheckpointError: A ``checkpoint`` cannot be read or does not fit.
    """

    def __init__(self, models: dict | Sequence[dict], sharpness: float = 1.0) -> None:
        super().__init__()
        if not sharpness > 0:
            raise VitnasError(f'`sharpness` should be above 0, but got {sharpness!r}')
        configs = [models] if isinstance(models, Mapping) else list(models)
        if not configs:
            raise VitnasError('`models` of vitnas.Teacher should hold a classifier, but it is empty')
        self.sharpness = sharpness
        with kept():  # initial weights that are replaced draw from nobody's generator
            self.models = nn.ModuleList(_build(dict(config)) for config in configs)
        self.eval().requires_grad_(False)

    @torch.no_grad()
    def forward(self, inputs: Tensor) -> Tensor:
        """Preprocessed images (B, 3, H, W) → probabilities (B, classes), in float32 at least.

        Raises:
            VitnasError: A model does not give logits, or two have different numbers of classes.
        """
        if next(self.parameters()).device != inputs.device:
            self.to(inputs.device)
        found = [self._probabilities(model, inputs) for model in self.models]
        sizes = [one.shape[-1] for one in found]
        if len(set(sizes)) > 1:
            raise VitnasError(f'the models of vitnas.Teacher should have the same classes, but have {sizes} of them')
        return torch.stack(found).mean(0)

    def _probabilities(self, model: Any, inputs: Tensor) -> Tensor:
        logits = model(inputs, mode='tensor')
        if not isinstance(logits, Tensor) or logits.ndim != 2:
            raise VitnasError(
                f'a model of vitnas.Teacher should give logits of (images, classes) as classifiers do, but '
                f'{type(model).__name__} does not'
            )
        return (precise(logits) * self.sharpness).softmax(-1)


def _build(config: dict[str, Any]) -> nn.Module:
    checkpoint: str | os.PathLike | None = config.pop('checkpoint', None)
    model = MM_MODELS.build(config)
    if checkpoint is not None:
        load_weights(model, checkpoint)
    elif any(_names_weights(module) for module in model.modules()):
        # Only then: mm's method would also call that of a timm model, which throws pretrained weights away.
        model.init_weights()
    return model


def _names_weights(module: nn.Module) -> bool:
    init_cfg = getattr(module, 'init_cfg', None) or []
    configs = [init_cfg] if isinstance(init_cfg, Mapping) else init_cfg
    return any(config['type'] in PRETRAINED for config in configs)
