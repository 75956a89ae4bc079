"""One-pass training: split a batch among many architectures, one forward and one backward (ViT-ResNAS, Sec. 2.3)."""

from __future__ import annotations

import logging
from typing import Any

from mmengine.dist import get_rank, get_world_size
from mmengine.logging import print_log
from mmengine.optim import OptimWrapper
from torch import Tensor

from ...backbones import elastic_backbone
from ...backbones.mixed import WAYS
from ...errors import VitnasError
from ...evaluation import batch_norms
from ...registry import RULES
from ...spaces import Arch
from ..samplers import ArchSampler
from .base import TrainingRule


@RULES.register_module()
class MultiArch(TrainingRule):
    """Give each architecture of a step an equal part of the batch, then run mmengine's own ``train_step``.

    The gradient is the sum over architectures, each trained on its part. Several processes split the architectures as
    they split the batch.

    Args:
        way: ``'sliced'`` runs one architecture after another, each at its own width. ``'masked'`` runs all at once at
            full width, with zeros in the channels that a sample's architecture lacks. ``'auto'`` is sliced on a CPU or
            if the backbone's settings do not allow masks, masked otherwise. All compute the same; only random drops of
            paths and attention weights differ. Defaults to ``'auto'``.
        interleaved: Whether sample r of a process gets architecture r mod n, as in the published code. Defaults to
            False: neighbouring samples get the same one.

    Raises:
        VitnasError: ``way`` is invalid.
    """

    def __init__(self, way: str = 'auto', interleaved: bool = False) -> None:
        if way not in WAYS:
            raise VitnasError(f'`way` should be one of {", ".join(WAYS)}, but got {way!r}')
        self.way, self.interleaved = way, interleaved
        self._warned = False

    def check(self, sampler: ArchSampler, model: Any) -> None:
        """Refuse parts that mix samples of a batch, and a number of architectures that processes cannot split."""
        if sampler.num_archs % get_world_size():
            raise VitnasError(
                f'vitnas.MultiArch splits the architectures of a step among {get_world_size()} processes, but '
                f'{type(sampler).__name__} draws {sampler.num_archs}; let it draw a multiple'
            )
        backbone = elastic_backbone(model)
        backbone.set_archs(sampler.num_archs * [backbone.arch], self.way)  # raises the reason if this way is impossible
        backbone.set_arch(backbone.arch)
        common = {id(part) for module in backbone.entry_modules() for part in module.modules()}
        found = [name for name, norm in batch_norms(model).items() if id(norm) not in common]
        if found:
            raise VitnasError(
                f'vitnas.MultiArch cannot train {found[0]}: a batch norm takes its mean over samples of different '
                f"architectures. Use another norm, e.g. norm_cfg=dict(type='GN', num_groups=32), freeze its "
                f"statistics, or train with rule=dict(type='vitnas.Sandwich')"
            )

    def step(self, model: Any, batch: Any, archs: list[Arch], optim_wrapper: OptimWrapper) -> dict[str, Tensor]:
        """Run one ordinary training step, with the batch split among the architectures of this process."""
        # Like images in mm's samplers: interleaved samples get the same architectures on any number of processes.
        own = archs[get_rank() :: get_world_size()]
        self._check_batch(batch, len(own))
        self.backbone.set_archs(own, self.way, self.interleaved)
        try:
            return model.train_step(batch, optim_wrapper=optim_wrapper)
        finally:
            self.backbone.set_arch(self.backbone.arch)

    def _check_batch(self, batch: Any, archs: int) -> None:
        """Warn once if architectures get no images; the last batch of an epoch may be small."""
        images = len(batch['inputs']) if isinstance(batch, dict) and 'inputs' in batch else archs
        if images < archs and not self._warned:
            self._warned = True
            print_log(
                f'vitnas.MultiArch splits a batch of {images} images among {archs} architectures: '
                f'{archs - images} of them learn nothing in such a step',
                'current',
                logging.WARNING,
            )
