"""``SamplerTrainLoop``: train an architecture sampler on a supernet that is trained already."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mmengine.runner import Runner
from torch import nn

from ..backbones import elastic_backbone, unwrap
from ..checkpoints import load_weights
from ..errors import VitnasError
from ..evaluation.pricing import pricer
from ..integration.runner import has_loaded, is_resuming, load_from, run_seed
from ..registry import ARCH_SAMPLERS, LOOPS
from ..utils import checks
from .counted import CountedLoop
from .hooks import SamplerStateHook
from .reinforce import SamplerTraining
from .samplers import ArchSampler


@LOOPS.register_module()
class SamplerTrainLoop(CountedLoop):
    """Train a sampler on the fixed weights of ``load_from`` (FocusFormer, Alg. 2 and Tab. 2, row 3).

    Checkpoints hold those weights and the sampler, as a search needs both.

    Args:
        runner: The runner.
        dataloader: Config of the images for rewards, the hold-out part of the training set.
        sampler: The sampler.
        max_iters: Number of iterations.
        **training: Other arguments of :class:`~vitnas_core.training.reinforce.SamplerTraining`, e.g. ``evaluator`` and
            ``optimizer``.

    Raises:
        VitnasError: The model is not elastic, there is no ``load_from``, the sampler does not learn, or a number is
            out of range.
    """

    def __init__(
        self,
        runner: Runner,
        dataloader: Mapping[str, Any],
        sampler: ArchSampler | dict,
        max_iters: int,
        **training: Any,
    ) -> None:
        self.backbone = elastic_backbone(runner.model)
        if not (load_from(runner) or is_resuming(runner)):
            raise VitnasError('vitnas.SamplerTrainLoop needs a trained supernet: give its checkpoint as load_from')
        self.sampler: ArchSampler = ARCH_SAMPLERS.build(sampler) if isinstance(sampler, dict) else sampler
        self.sampler.bind(self.backbone.space, pricer(runner.cfg, self.backbone.price), run_seed(runner))
        self.training = SamplerTraining(runner, self.sampler, dataloader, **training)
        runner.register_hook(SamplerStateHook(self.sampler))
        super().__init__(runner, self.training.dataloader)
        self._max_iters = checks.whole('max_iters', max_iters)

    def run(self) -> nn.Module:
        """Train the sampler."""
        runner = self.runner
        if not has_loaded(runner):
            raise VitnasError(f'there is nothing to resume in {runner.work_dir}: give the supernet as load_from')
        if self._iter > self._max_iters:
            raise VitnasError(f'`max_iters` is {self._max_iters}, but {self._iter} iterations are done already')
        if not is_resuming(runner):  # strictly, so that no reward comes from random weights
            load_weights(unwrap(runner.model), str(load_from(runner)))
        runner.call_hook('before_train')
        runner.call_hook('before_train_epoch')
        iterations = self.training.run(self._max_iters - self._iter)
        while self._iter < self._max_iters:
            runner.call_hook('before_train_iter', batch_idx=self._iter, data_batch=None)
            measured = next(iterations)
            runner.call_hook('after_train_iter', batch_idx=self._iter, data_batch=None, outputs=measured)
            self._iter += 1
        runner.call_hook('after_train_epoch')
        runner.call_hook('after_train')
        return runner.model
