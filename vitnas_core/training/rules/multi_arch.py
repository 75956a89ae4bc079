"""One-pass training: a batch shared among many architectures, one forward and one backward (ViT-ResNAS, Sec. 2.3)."""

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
    """Give each architecture of the step an equal part of the batch; the rest is mm's own ``train_step``.

    The gradients are those of training each architecture on its part and adding up. On several processes each trains
    its share of the architectures, so that as many as the sampler draws share the batch of all of them.

    Args:
        way: ``'sliced'``: one after another, each at its own width; ``'masked'``: all at once at full width, with
            zeros in the channels that a sample's architecture lacks; ``'auto'``: sliced on a CPU and where settings of
            the backbone do not allow masks, masked elsewhere. All compute the same; only what is dropped at random,
            paths and attention weights, differs. Defaults to ``'auto'``.
        interleaved: Whether sample r of a process has architecture r mod n, as in the published code. Defaults to
            False: neighbours have the same.

    Raises:
        VitnasError: ``way`` is none of these.
    """

    def __init__(self, way: str = 'auto', interleaved: bool = False) -> None:
        if way not in WAYS:
            raise VitnasError(f'`way` should be one of {", ".join(WAYS)}, but got {way!r}')
        self.way, self.interleaved = way, interleaved
        self._warned = False

    def check(self, sampler: ArchSampler, model: Any) -> None:
        """Refuse what would mix architectures, and architectures that processes cannot share."""
        if sampler.num_archs % get_world_size():
            raise VitnasError(
                f'vitnas.MultiArch shares the architectures of a step among {get_world_size()} processes, but '
                f'{type(sampler).__name__} draws {sampler.num_archs}; let it draw a multiple'
            )
        backbone = elastic_backbone(model)
        backbone.set_archs(sampler.num_archs * [backbone.arch], self.way)  # says why this way cannot be
        backbone.set_arch(backbone.arch)
        shared = {id(part) for module in backbone.shared_modules() for part in module.modules()}
        found = [name for name, norm in batch_norms(model).items() if id(norm) not in shared]
        if found:
            raise VitnasError(
                f'vitnas.MultiArch cannot train {found[0]}: a batch norm takes its mean over samples of different '
                f"architectures. Use another norm, e.g. norm_cfg=dict(type='GN', num_groups=32), freeze its "
                f"statistics, or train with rule=dict(type='vitnas.Sandwich')"
            )

    def step(self, model: Any, batch: Any, archs: list[Arch], optim_wrapper: OptimWrapper) -> dict[str, Tensor]:
        """One ordinary training step in which this process's architectures share the batch."""
        # As mm's samplers deal images out: one process or several, interleaved samples get the same architectures.
        own = archs[get_rank() :: get_world_size()]
        self._check_batch(batch, len(own))
        backbone = elastic_backbone(model)
        backbone.set_archs(own, self.way, self.interleaved)
        try:
            return model.train_step(batch, optim_wrapper=optim_wrapper)
        finally:
            backbone.set_arch(backbone.arch)

    def _check_batch(self, batch: Any, archs: int) -> None:
        """Say once that architectures go without images; the last batch of an epoch may be a small one."""
        images = len(batch['inputs']) if isinstance(batch, dict) and 'inputs' in batch else archs
        if images < archs and not self._warned:
            self._warned = True
            print_log(
                f'vitnas.MultiArch shares a batch of {images} images among {archs} architectures: '
                f'{archs - images} of them learn nothing in such a step',
                'current',
                logging.WARNING,
            )
