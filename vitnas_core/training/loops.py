"""``SupernetTrainLoop``: a sampler picks the architectures of each step, a rule turns them into gradients."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from mmcv.ops import SyncBatchNorm
from mmengine.dataset import InfiniteSampler
from mmengine.dist import get_rank
from mmengine.runner import Runner
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from ..backbones import ElasticBackbone, elastic_backbone, unwrap
from ..errors import VitnasError
from ..evaluation.pricing import pricer
from ..integration.runner import run_seed
from ..registry import ARCH_SAMPLERS, LOOPS, RULES
from ..utils import checks
from ..utils.randomness import seeded
from .counted import CountedLoop
from .dataloading import SeededLoader
from .hooks import SamplerStateHook
from .rules import TrainingRule
from .samplers import ArchSampler


@LOOPS.register_module()
class SupernetTrainLoop(CountedLoop):
    """Train a model with an elastic backbone, by epochs or by iterations.

    All randomness of a step (architectures, augmentation, drop path) depends only on the seed and the step. So every
    rank draws the same architectures without communication. A training that is stopped at any step and resumed goes
    on bit for bit as if it had not been stopped.

    Args:
        runner: The runner.
        dataloader: The training data, or their config.
        sampler: Picks the architectures of a step.
        rule: Turns them into gradients.
        max_epochs: Number of epochs. Give either this or ``max_iters``.
        max_iters: Number of iterations.
        val_begin: First epoch (or iteration) after which the val loop may run. Defaults to 1.
        val_interval: Number of epochs (or iterations) between two runs of the val loop, which validates the largest
            architecture. Defaults to 1.

    Raises:
        VitnasError: Both lengths are given or none, the model has no elastic backbone, rule and sampler do not fit, or
            the head does not allow the backbone's ``sharing``.
    """

    def __init__(
        self,
        runner: Runner,
        dataloader: DataLoader | dict,
        sampler: ArchSampler | dict,
        rule: TrainingRule | dict,
        max_epochs: int | None = None,
        max_iters: int | None = None,
        val_begin: int = 1,
        val_interval: int = 1,
    ) -> None:
        if (max_epochs is None) == (max_iters is None):
            raise VitnasError(
                'SupernetTrainLoop should be given either `max_epochs` or `max_iters`, but got '
                f'max_epochs={max_epochs!r}, max_iters={max_iters!r}'
            )
        self.backbone = elastic_backbone(runner.model)
        self.sampler: ArchSampler = ARCH_SAMPLERS.build(sampler) if isinstance(sampler, dict) else sampler
        self.rule: TrainingRule = RULES.build(rule) if isinstance(rule, dict) else rule
        self.rule.bind(self.backbone)
        self.rule.check(self.sampler, unwrap(runner.model))
        self.sampler.bind(self.backbone.space, pricer(runner.cfg, self.backbone.price), run_seed(runner))
        runner.register_hook(SamplerStateHook(self.sampler))
        _check_wrapper(runner.model)
        _check_norms(self.backbone)
        _check_sides(self.backbone, unwrap(runner.model))
        super().__init__(runner, dataloader)
        self.dataloader: SeededLoader = SeededLoader(self.dataloader)
        self.by_epoch = max_epochs is not None
        # Infinite samplers never end a pass: all iterations are one.
        self._endless = isinstance(self.dataloader.batches.sampler, InfiniteSampler)
        if self.by_epoch and self._endless:
            raise VitnasError('an InfiniteSampler never ends an epoch: give SupernetTrainLoop `max_iters`')
        self._max_epochs = max_epochs if max_epochs is not None else 1
        self._max_iters = max_iters if max_iters is not None else self._max_epochs * len(self.dataloader)
        self.val_begin, self.val_interval = val_begin, val_interval
        self.stop_training = False  # EarlyStoppingHook sets it

    def run(self) -> nn.Module:
        """Train."""
        self._seed = run_seed(self.runner)  # architectures and data are the same on every rank
        self._check_length()
        self.runner.call_hook('before_train')
        if self.by_epoch:
            while self._epoch < self._max_epochs and not self.stop_training:
                self._run_epoch()
        else:
            self._run_iterations()
        self.runner.call_hook('after_train')
        return self.runner.model

    def _check_length(self) -> None:
        """Correct the iteration if the epochs of a resumed training have another length (more ranks, other batches)."""
        hub, length = self.runner.message_hub, len(self.dataloader)
        before = hub.get_info('epoch_length', length) if self._iter else length
        hub.update_info('epoch_length', length)
        if before != length and self.by_epoch:
            self._iter = self._epoch * length
            self.runner.logger.warning(
                f'an epoch has {length} steps now and had {before} when the checkpoint was written: the training goes '
                f'on from the start of epoch {self._epoch + 1}, and is not what it would have been'
            )

    def _run_epoch(self) -> None:
        self.runner.call_hook('before_train_epoch')
        self.runner.model.train()
        first = self._iter - self._epoch * len(self.dataloader)  # not 0 when resumed in the middle of an epoch
        self.dataloader.batches.start(self._seed, self._epoch, first)
        for index, batch in enumerate(self.dataloader, start=first):
            self._run_step(index, batch)
        self.runner.call_hook('after_train_epoch')
        self._epoch += 1
        self._validate(self._epoch, self._max_epochs)

    def _run_iterations(self) -> None:
        """Train by iterations. To hooks the whole training is one epoch, as in mmengine."""
        self.runner.call_hook('before_train_epoch')
        while self._iter < self._max_iters and not self.stop_training:
            data_pass, first = (0, self._iter) if self._endless else divmod(self._iter, len(self.dataloader))
            self.dataloader.batches.start(self._seed, data_pass, first)
            for batch in self.dataloader:
                self.runner.model.train()
                self._run_step(self._iter, batch)
                self._validate(self._iter, self._max_iters)
                if self._iter >= self._max_iters or self.stop_training:
                    break
        self.runner.call_hook('after_train_epoch')

    def _run_step(self, index: int, batch: Any) -> None:
        runner = self.runner
        runner.call_hook('before_train_iter', batch_idx=index, data_batch=batch)
        rng = np.random.default_rng([self._seed, self._iter])
        archs = self.sampler.sample(self.backbone.space, rng, self._iter / self._max_iters)
        with seeded(self._seed, self._iter, get_rank(), 1):  # four words: no sample has this key
            outputs = self.rule.step(runner.model, batch, archs, runner.optim_wrapper)
        runner.call_hook('after_train_iter', batch_idx=index, data_batch=batch, outputs=outputs)
        self._iter += 1

    def _validate(self, done: int, total: int) -> None:
        """Validate the largest architecture if it is due."""
        due = done >= self.val_begin and (done % self.val_interval == 0 or done == total)
        if self.runner.val_loop is not None and due:
            self.backbone.set_arch(self.backbone.space.largest())
            self.runner.val_loop.run()


def _check_norms(backbone: ElasticBackbone) -> None:
    """Refuse elastic batch norms that mmengine has replaced by synchronised ones, which have one width."""
    common = {part for module in backbone.entry_modules() for part in module.modules()}
    kinds = (nn.SyncBatchNorm, SyncBatchNorm)
    found = [name for name, part in backbone.named_modules() if isinstance(part, kinds) and part not in common]
    if found:
        raise VitnasError(
            f'`sync_bn` makes {found[0]} and other batch norms of the backbone fixed ones, in which architectures '
            f'cannot differ: leave it out of the config of a supernet'
        )


def _check_sides(backbone: ElasticBackbone, model: nn.Module) -> None:
    """Refuse to train both sides of a pattern unless all behind the backbone is linear.

    The backbone sums the features of both sides. That is BCNet's sum of logits only if the logits are an affine
    function of the features.
    """
    if not backbone.pattern.two_sided or _is_affine_behind(backbone, model):
        return
    parts = [getattr(model, name, None) for name in ('neck', 'head')]
    names = ', '.join(type(part).__name__ for part in parts if part is not None)
    raise VitnasError(
        f"`sharing='{backbone.pattern.name}'` trains the sum of both sides, for which all behind the backbone "
        f'should be linear, e.g. average pooling and a linear layer, but got {type(model).__name__}'
        f'{f" with {names}" if names else ""}: use another `sharing`'
    )


@torch.no_grad()
def _is_affine_behind(backbone: ElasticBackbone, model: nn.Module) -> bool:
    """Return whether a model's raw output is one tensor that is affine in the features, judged by random ones."""
    reference = next(backbone.parameters())
    images = reference.new_zeros(1, 3, *checks.size('img_size', backbone.settings.get('img_size') or 224))
    modes = {module: module.training for module in model.modules()}
    model.eval()
    found = []
    try:
        for factors in ((1, 1), (0, 0), (1, 0), (0, 1)):
            with backbone.register_forward_hook(partial(_replace_features, factors)):
                found.append(model(images, mode='tensor'))
    except Exception:  # the model gives no raw output for images alone
        return False
    finally:
        for module, training in modes.items():
            module.training = training
    if not all(isinstance(output, Tensor) for output in found):
        return False
    both, neither, first, second = found
    return torch.allclose(both + neither, first + second, rtol=1e-3, atol=1e-4 * float(both.abs().max()))


def _replace_features(factors: tuple[int, int], module: nn.Module, args: Any, outputs: tuple[Tensor, ...]) -> Any:
    """Replace features by a sum of two random ones, the same in every call, times the factors."""
    drawn = torch.Generator().manual_seed(0)
    return tuple(sum(f * torch.randn(x.shape, generator=drawn).to(x) for f in factors) for x in outputs)


def _check_wrapper(model: nn.Module) -> None:
    """Refuse a distributed wrapper that expects every parameter to be used: a subnet leaves some unused."""
    if isinstance(model, DistributedDataParallel) and not model.find_unused_parameters:
        raise VitnasError(
            'a supernet in distributed training needs `find_unused_parameters = True` in its config (or in its '
            '`model_wrapper_cfg`): an architecture uses only a part of the parameters'
        )
