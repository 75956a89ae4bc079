"""Progressive learning: image sizes grow during training (FocusFormer, Sec. 3.2; EfficientNetV2)."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from mmengine.hooks import Hook
from mmengine.runner import Runner
from torch import Tensor

from ...backbones import ElasticBackbone, unwrap
from ...errors import VitnasError
from ...registry import HOOKS
from ...utils import checks


@HOOKS.register_module()
class ProgressiveLearningHook(Hook):
    """Resize the training batches of an image classifier: small images first, full size in the end.

    The sizes from ``start`` to ``end`` in steps of ``step`` take equal parts of the training. Validation, rewards and
    costs use the full size.

    Args:
        start: First image side S_0, e.g. 160.
        end: Last image side S_e, that of the data pipeline.
        step: Difference of two sizes. Defaults to 16, the patch size.

    Raises:
        VitnasError: The sizes are no multiples of ``step`` or of the patch size, or the backbone resizes images by
            itself. While training: a batch is not for an image classifier, or its size is not ``end``.
    """

    def __init__(self, start: int, end: int, step: int = 16) -> None:
        for name, value, least in (('step', step, 1), ('start', start, step), ('end', end, start)):
            checks.whole(name, value, least)
        if start % step or end % step:
            raise VitnasError(f'`start` and `end` should be multiples of `step`, {step}, but got {start} and {end}')
        self.sizes, self.step = tuple(range(start, end + 1, step)), step

    def size_at(self, progress: float) -> int:
        """Return the image side at a progress from 0 to 1."""
        return self.sizes[min(int(progress * len(self.sizes)), len(self.sizes) - 1)]

    def before_train(self, runner: Runner) -> None:
        """Check that sizes are whole patches and that the backbone does not resize images."""
        backbone: Any = getattr(unwrap(runner.model), 'backbone', None)
        if isinstance(backbone, ElasticBackbone) and self._changes_nothing(backbone):
            raise VitnasError(
                f'vitnas.ProgressiveLearningHook would change nothing: as a classifier, {type(backbone).__name__} '
                f'resizes images to the resolution of its architecture by itself; leave the hook out'
            )
        patch = self._patch_size(backbone)
        if patch and self.sizes[0] % patch + (self.step % patch):
            raise VitnasError(
                f'`start` and `step` of vitnas.ProgressiveLearningHook should be multiples of the patch size, {patch}, '
                f'but got {self.sizes[0]} and {self.step}'
            )

    def _patch_size(self, backbone: Any) -> int:
        """Return the side of a patch: a setting or a choice of an elastic backbone, or an attribute of another one."""
        if isinstance(backbone, ElasticBackbone):
            patch = backbone.settings.get('patch_size') or backbone.arch.choices.get('patch_size')
        else:
            patch = getattr(backbone, 'patch_size', None)
        return patch if isinstance(patch, int) else 0

    def _changes_nothing(self, backbone: ElasticBackbone) -> bool:
        """Return whether images of all sizes cost the same, which is so if the backbone resizes them."""
        start, end = self.sizes[0], self.sizes[-1]
        return start < end and backbone.price(backbone.arch, start) == backbone.price(backbone.arch, end)

    def before_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None) -> None:
        """Resize the batch."""
        if not isinstance(data_batch, dict):
            raise VitnasError('vitnas.ProgressiveLearningHook needs a loop that trains on images')
        size = self.size_at(runner.iter / runner.max_iters)
        images, samples = data_batch['inputs'], data_batch.get('data_samples') or []
        if any(not hasattr(sample, 'gt_label') for sample in samples):
            raise VitnasError('vitnas.ProgressiveLearningHook resizes images of classifiers only: boxes and masks stay')
        end = self.sizes[-1]
        for image in images:
            if tuple(image.shape[-2:]) != (end, end):
                raise VitnasError(
                    f'`end` of vitnas.ProgressiveLearningHook is {end}, but the data pipeline gives images of '
                    f'{image.shape[-2]} × {image.shape[-1]}'
                )
        if size != end:
            data_batch['inputs'] = _resize(images, size)
        runner.message_hub.update_scalar('train/image_size', size)


def _resize(images: Tensor | list[Tensor], size: int) -> Tensor:
    """Resize (B, C, H, W), or a list of (C, H, W), to (B, C, size, size) of the same type."""
    batch = images if isinstance(images, Tensor) else torch.stack(images)
    return F.interpolate(batch, (size, size), mode='bilinear', antialias=True)  # quickest on bytes, on a CPU
