"""Hooks for samplers that learn: save their state, and train them between epochs of the supernet."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from mmengine.hooks import Hook
from mmengine.runner import Runner

from ...errors import CheckpointError, VitnasError
from ...integration.runner import averaged_weights, is_resuming, train_loop_is_built
from ...registry import HOOKS
from ...utils import checks
from ..reinforce import SamplerTraining
from ..samplers import ArchSampler
from ..samplers.base import SAMPLER


class SamplerStateHook(Hook):
    """Keep the state of a loop's sampler in checkpoints; the loop registers this hook.

    Args:
        sampler: The sampler, bound to its space.
    """

    def __init__(self, sampler: ArchSampler) -> None:
        self.sampler = sampler

    def before_save_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        """Add the sampler's state."""
        if state := self.sampler.state_dict():
            checkpoint[SAMPLER] = state

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        """Load the sampler's state; ``load_from`` may be a supernet that was trained with another sampler.

        Raises:
            CheckpointError: The sampler of a checkpoint to resume from does not fit.
        """
        if not self.sampler.state_dict():
            return
        try:
            if SAMPLER not in checkpoint:
                raise CheckpointError(f'the checkpoint has no architecture sampler for {type(self.sampler).__name__}')
            self.sampler.load_state_dict(checkpoint[SAMPLER], resume=is_resuming(runner))
        except CheckpointError as err:
            if is_resuming(runner):
                raise
            runner.logger.warning(f'Sampler: starts untrained: {err}')


@HOOKS.register_module()
class SamplerTrainHook(Hook):
    """Train the loop's sampler at regular intervals (FocusFormer, Alg. 1, lines 3 to 5).

    Rewards come from the images of ``val_dataloader``, the hold-out part of the training set, and from
    ``val_evaluator``. The batch size is that of the supernet's training. If there is an ``EMAHook``, its averaged
    weights are scored.

    Args:
        interval: τ: train before every τ-th epoch (or iteration, if the loop counts these).
        iterations: K: iterations of one training (Alg. 2). Defaults to 100, as in the paper.
        **training: Arguments of :class:`~vitnas_core.training.reinforce.SamplerTraining` except the data, e.g.
            ``optimizer``.

    Raises:
        VitnasError: A number is out of range. When the training starts: the loop's sampler does not learn, or
            ``val_dataloader`` is missing or reads the test set.
    """

    def __init__(self, interval: int, iterations: int = 100, **training: Any) -> None:
        self.interval = checks.whole('interval', interval)
        self.iterations = checks.whole('iterations', iterations)
        self._settings = training

    def before_run(self, runner: Runner) -> None:
        """Build the sampler's training before a checkpoint is loaded; a test or a validation has none."""
        if not train_loop_is_built(runner) or hasattr(self, 'training'):
            return
        images, evaluator = runner.cfg.get('val_dataloader'), runner.cfg.get('val_evaluator')
        if images is None or evaluator is None:
            raise VitnasError('vitnas.SamplerTrainHook needs val_dataloader and val_evaluator, where rewards come from')
        batch_size = runner.cfg.train_dataloader.get('batch_size') or images['batch_size']
        images = {**copy.deepcopy(images), 'batch_size': batch_size}
        sampler = getattr(runner.train_loop, 'sampler', None)
        self.training = SamplerTraining(runner, sampler, images, copy.deepcopy(evaluator), **self._settings)
        self.by_epoch = getattr(runner.train_loop, 'by_epoch', True)

    def before_train(self, runner: Runner) -> None:
        """Try the metric now: it is first needed after many epochs."""
        self.training.check()

    def before_train_epoch(self, runner: Runner) -> None:
        """Train if it is due by epochs."""
        if self.by_epoch:
            self._train(runner, runner.epoch)

    def before_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None) -> None:
        """Train if it is due by iterations."""
        if not self.by_epoch:
            self._train(runner, runner.iter)

    def _train(self, runner: Runner, now: int) -> None:
        """Train if it is due and not done; a training resumed inside an epoch has done that epoch's."""
        if (now + 1) % self.interval or now == self.training.last:
            return
        self.training.last = now
        with averaged_weights(runner):
            measured = list(self.training.run(self.iterations))
        means = {name: float(np.mean([one[name] for one in measured])) for name in measured[0]}
        runner.visualizer.add_scalars({f'sampler/{name}': value for name, value in means.items()}, step=runner.iter)
        words = ', '.join(f'{name} {value:.4f}' for name, value in means.items())
        runner.logger.info(
            f'Sampler: {self.training.iterations} iterations, means of the last {len(measured)}: {words}'
        )
