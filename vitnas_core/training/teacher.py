"""A teacher outside the model, from which the largest architecture learns (NASViT, Sec. 2; LeViT)."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeGuard

import torch
import torch.nn.functional as F
from mmengine.registry import MODELS as MM_MODELS
from torch import Tensor, nn

from ..backbones.module import PRETRAINED
from ..checkpoints import load_weights
from ..errors import VitnasError
from ..registry import MODELS
from ..utils import checks
from ..utils.randomness import kept
from .distillation import precise

TO_RGB = ('to_rgb', 'bgr_to_rgb', 'rgb_to_bgr')
"""Keys of mm's data preprocessors that reverse the order of channels."""

HONOURED = ('type', 'mean', 'std', *TO_RGB, 'num_classes', 'to_onehot')
"""Keys that the data preprocessor of a teacher may have; the last two concern labels."""


@MODELS.register_module()
class Teacher(nn.Module):
    """Return the mean probabilities of one or several trained classifiers.

    They see the batch of the model, mixed images included, resized to ``input_size`` and normalised by their own
    ``data_preprocessor`` if these are given. They are always in test mode, learn nothing and are no part of the model
    or its checkpoints.

    Args:
        models: Config of a classifier of any toolbox, or a list of them, e.g.
            ``dict(type='mmpretrain.TimmClassifier', model_name='tf_efficientnet_b5', pretrained=True)``, which is for
            ``input_size=456``. Weights come from timm's ``pretrained``, from mm's ``init_cfg``, or from a file that the
            key ``checkpoint`` beside ``type`` names and that must hold all of them. A classifier with another
            normalisation than the student's says so as in mm, also one of timm:
            ``data_preprocessor=dict(mean=[127.5] * 3, std=[127.5] * 3, to_rgb=True)``.
        sharpness: Factor of the logits before the softmax. Defaults to 1; NASViT's published code has 5.
        input_size: Image side for the teacher; images are resized bicubically. Defaults to None: not resized.
        data_preprocessor: The student's, ``_base_.data_preprocessor``; needed if a model has its own. Defaults to None.

    Raises:
        VitnasError: There is no model, ``sharpness`` is not above 0, ``input_size`` is not a whole number from 1, or a
            ``data_preprocessor`` has settings that cannot be undone or applied.
        CheckpointError: A ``checkpoint`` cannot be read or does not fit.
    """

    def __init__(
        self,
        models: dict | Sequence[dict],
        sharpness: float = 1.0,
        input_size: int | None = None,
        data_preprocessor: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        if input_size is not None:
            checks.whole('input_size', input_size)
        configs = [models] if isinstance(models, Mapping) else list(models)
        if not configs:
            raise VitnasError('`models` of vitnas.Teacher should hold a classifier, but it is empty')
        self.sharpness = checks.positive('sharpness', sharpness)
        views = [_view(f'models[{i}]', config, data_preprocessor, input_size) for i, config in enumerate(configs)]
        with kept():  # initial weights, which are replaced, take no random numbers from the training
            self.models = nn.ModuleList(_build(copy.deepcopy(dict(config))) for config in configs)
        for model, view in zip(self.models, views):
            model.register_forward_pre_hook(view.take)
        self.eval().requires_grad_(False)

    @torch.no_grad()
    def forward(self, inputs: Tensor) -> Tensor:
        """Preprocessed images (B, 3, H, W) → probabilities (B, classes), in float32 at least.

        Raises:
            VitnasError: A model refuses the image size, gives no logits, or has other classes than another model.
        """
        if next(self.parameters()).device != inputs.device:
            self.to(inputs.device)
        found = [self._probabilities(model, inputs) for model in self.models]
        sizes = [one.shape[-1] for one in found]
        if len(set(sizes)) > 1:
            raise VitnasError(f'the models of vitnas.Teacher should have the same classes, but have {sizes} of them')
        return torch.stack(found).mean(0)

    def _probabilities(self, model: Any, inputs: Tensor) -> Tensor:
        try:
            logits = model(inputs, mode='tensor')
        except AssertionError as err:  # timm's, where a transformer is for images of another size
            raise VitnasError(
                f'{type(model).__name__} refuses the images: {err}; `input_size` of vitnas.Teacher should be the size '
                f'that it is for'
            ) from err
        if not isinstance(logits, Tensor) or logits.ndim != 2:
            raise VitnasError(
                f'a model of vitnas.Teacher should give logits of (images, classes) as classifiers do, but '
                f'{type(model).__name__} does not'
            )
        return (precise(logits) * self.sharpness).softmax(-1)


class _View(NamedTuple):
    """Preprocessing from the student's images to a classifier's."""

    size: int | None
    turned: bool = False
    """True to reverse the channels."""
    scale: tuple[float, ...] = (1.0,) * 3
    shift: tuple[float, ...] = (0.0,) * 3
    """``scale`` and ``shift`` of each channel, in the classifier's order."""

    def take(self, model: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Preprocess the input of the classifier; a forward pre-hook."""
        x, *others = args
        if self.size is not None and x.shape[2:] != (self.size, self.size):
            x = F.interpolate(x, (self.size, self.size), mode='bicubic', antialias=True)
        if self.turned:
            x = x.flip(1)
        if self != _View(self.size, self.turned):
            scale, shift = (x.new_tensor(values).view(3, 1, 1) for values in (self.scale, self.shift))
            x = x * scale + shift
        return (x, *others)


def _view(name: str, config: Mapping[str, Any], student: Mapping[str, Any] | None, size: int | None) -> _View:
    """Return preprocessing that undoes the student's normalisation and applies a classifier's own, if it has one."""
    own = config.get('data_preprocessor')
    if own is None:
        return _View(size)
    if student is None:
        raise VitnasError(
            f'{name} of vitnas.Teacher has a data_preprocessor of its own, so that of the student must be undone; '
            f'give it: dict(type="vitnas.Teacher", data_preprocessor=_base_.data_preprocessor, …)'
        )
    given = _Normalisation.read('data_preprocessor', student)
    to = _Normalisation.read(f'data_preprocessor of {name}', own)
    if unknown := [key for key in own if key not in HONOURED]:
        raise VitnasError(
            f'data_preprocessor of {name} of vitnas.Teacher may say mean, std and to_rgb, but it has {unknown[0]}'
        )
    turned = to.turned != given.turned
    mean, std = (values[::-1] if turned else values for values in (given.mean, given.std))
    scale = tuple(ours / theirs for ours, theirs in zip(std, to.std))
    shift = tuple((ours - theirs) / unit for ours, theirs, unit in zip(mean, to.mean, to.std))
    return _View(size, turned, scale, shift)


class _Normalisation(NamedTuple):
    """Normalisation of a data preprocessor."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    turned: bool

    @classmethod
    def read(cls, name: str, config: Any) -> _Normalisation:
        """Read it from a config; without mean and std, pixels stay as they are."""
        given = config if isinstance(config, Mapping) else {}
        mean, std = given.get('mean'), given.get('std')
        if mean is None and std is None and isinstance(config, Mapping):
            mean, std = (0.0,) * 3, (1.0,) * 3
        if not _are_three(mean) or not _are_three(std) or min(std) <= 0:
            raise VitnasError(
                f'{name} of vitnas.Teacher should be a config with three numbers as mean and three above 0 as std, or '
                f'with neither, but got {config!r}'
            )
        return cls(tuple(mean), tuple(std), any(given.get(key) for key in TO_RGB))


def _are_three(values: Any) -> TypeGuard[Sequence[float]]:
    numbers = isinstance(values, Sequence) and all(isinstance(value, (int, float)) for value in values)
    return numbers and len(values) == 3


def _build(config: dict[str, Any]) -> nn.Module:
    checkpoint: str | os.PathLike | None = config.pop('checkpoint', None)
    model = MM_MODELS.build(config)
    if checkpoint is not None:
        load_weights(model, checkpoint)
    elif any(_names_weights(module) for module in model.modules()):
        # Only then: it would also call the method of a timm model, which discards pretrained weights.
        model.init_weights()
    return model


def _names_weights(module: nn.Module) -> bool:
    init_cfg = getattr(module, 'init_cfg', None) or []
    configs = [init_cfg] if isinstance(init_cfg, Mapping) else init_cfg
    return any(config['type'] in PRETRAINED for config in configs)
