"""``SubnetEvaluator``: the score of one architecture of a supernet on hold-out images that are decoded once."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from mmengine.evaluator import Evaluator
from mmengine.evaluator.metric import _to_cpu
from mmengine.model import BaseModel
from mmengine.structures import BaseDataElement
from torch import Tensor
from torch.utils.data import DataLoader

from ..backbones import elastic_backbone
from ..datasets.order import WholeSampler
from ..errors import VitnasError
from ..recalibration import recalibrate
from ..scoring import check_images, make_step, metric_value
from ..spaces import Arch
from .racing import Racing

_SLACK = 1e-4
"""Accuracies are float32 percentages: a candidate that ties with the floor must not fall to rounding."""


@dataclass(frozen=True)
class Score:
    """What an evaluation found.

    Args:
        value: The metric.
        complete: False where racing dropped the candidate, or where there is no value (minus infinity).
    """

    value: float
    complete: bool = True


class SubnetEvaluator:
    """Scores architectures with shared weights, one after another, on this rank alone.

    Args:
        model: An mm model with one elastic backbone, not wrapped.
        dataloader: The hold-out images, in the order of :class:`WholeSampler`.
        evaluator: mmengine's evaluator with the metrics.
        metric: Which value counts, e.g. ``'accuracy/top1'``; greater is better. Defaults to None: the
            first that the metrics return.
        racing: When to drop a candidate early; not for a bilateral pattern. Defaults to None: never.
        keep_gb: Decoded batches are kept up to this size; those beyond are decoded for every candidate.
        recalibrate: On how many of the batches the statistics of batch norms are taken for each architecture before it
            is scored; without them those of the supernet's training count, which are of all. Defaults to 0: none.

    Raises:
        VitnasError: Racing is asked for with a metric that is not a mean over images, or a metric scores other images.
    """

    def __init__(
        self,
        model: BaseModel,
        dataloader: DataLoader,
        evaluator: Evaluator,
        metric: str | None = None,
        racing: Racing | None = None,
        keep_gb: float = 4.0,
        recalibrate: int = 0,
    ) -> None:
        self.model, self.dataloader, self.evaluator = model, dataloader, evaluator
        self.backbone = elastic_backbone(model)
        self.metric, self.racing, self.recalibrate = metric, racing, recalibrate
        self.num_batches, self.num_samples = len(dataloader), len(dataloader.dataset)  # type: ignore[arg-type]
        self._room = keep_gb * 2**30
        self._kept: list[Any] = []
        self._kept_samples = 0
        evaluator.dataset_meta = getattr(dataloader.dataset, 'metainfo', None)
        check_images(evaluator, f'candidates are compared on {self.num_samples} images', self.num_samples)
        self.step = make_step(model, evaluator)
        if racing is not None:
            if len(self.backbone.pattern.sides) > 1:
                raise VitnasError(
                    "`racing` cannot drop candidates of sharing='bilateral', whose score is a mean of two"
                )
            self._span = _span_of_mean(evaluator)

    @torch.no_grad()
    def evaluate(self, arch: Arch, share: float = 1.0, floor: float | None = None) -> Score:
        """Score an architecture; with a bilateral pattern, by the mean over both sides (BCNet).

        Args:
            arch: Which one.
            share: The part of the batches to use, from the first on. Defaults to 1.
            floor: With racing: the score that the candidate must be able to reach. Defaults to None.
        """
        self.activate(arch)
        wanted = max(1, math.ceil(share * self.num_batches - 1e-9))
        scores = [self._score(wanted, floor if share == 1.0 else None) for _ in self.backbone.each_side()]
        return Score(sum(score.value for score in scores) / len(scores), all(score.complete for score in scores))

    def _score(self, wanted: int, floor: float | None) -> Score:
        """Score what is active on the first batches."""
        self.step.start()
        race = _Race(self, floor) if self.racing is not None and floor is not None else None
        for batch in self._batches(wanted):
            self.step.run(batch)
            if race is not None and race.is_lost():
                return Score(self._value(), complete=False)
        value = self._value()
        return Score(value, complete=math.isfinite(value))

    def activate(self, arch: Arch) -> None:
        """Let the model be an architecture, as it is scored."""
        self.model.eval()
        self.backbone.set_arch(arch)
        if self.recalibrate:
            recalibrate(self.model, self.step.forward, self._batches(min(self.recalibrate, self.num_batches)))

    def _batches(self, wanted: int) -> Iterator[Any]:
        """The first batches: kept ones, then those that are decoded anew and kept while there is room."""
        yield from self._kept[:wanted]
        missing = wanted - len(self._kept)
        if missing <= 0:
            return
        sampler, keep = self.dataloader.sampler, self._room > 0
        assert isinstance(sampler, WholeSampler)
        sampler.start = self._kept_samples
        try:
            for _, decoded in zip(range(missing), self.dataloader):
                batch = self.step.prepare(decoded)
                if keep:
                    self._room -= _size(batch)
                    keep = self._room > 0
                if keep:
                    self._kept.append(batch)
                    self._kept_samples += self.dataloader.batch_size or 0
                yield batch
        finally:
            sampler.start = 0

    def _value(self) -> float:
        """The metric so far; minus infinity where there is none, as for a detector that finds nothing."""
        self.metric, value = metric_value(self.evaluator, self.metric)
        return value


class _Race:
    """The running mean of one candidate against a floor."""

    def __init__(self, owner: SubnetEvaluator, floor: float) -> None:
        self.owner, self.floor = owner, floor
        self.seen, self.total = 0, 0.0

    def is_lost(self) -> bool:
        """Whether the floor is out of reach after the batches so far; never after the last one."""
        owner, racing = self.owner, self.owner.racing
        results = owner.evaluator.metrics[0].results
        fresh = len(results) - self.seen
        if fresh and len(results) < owner.num_samples:
            values = owner.evaluator.metrics[0].compute_metrics(_to_cpu(results[self.seen :]))
            prefix = owner.evaluator.metrics[0].prefix
            name = (owner.metric or '').removeprefix(f'{prefix}/') or next(iter(values))
            self.total += values[name] * fresh
        self.seen = len(results)
        if racing is None or not 0 < self.seen < owner.num_samples:
            return False
        mean = self.total / self.seen
        bound = racing.upper(mean, self.seen, owner.num_samples, owner._span, owner.num_batches - 1)
        return bound < self.floor - _SLACK


def _span_of_mean(evaluator: Evaluator) -> float:
    """The width of the values that a metric is the mean of."""
    from mmpretrain.evaluation import Accuracy

    names = [type(metric).__name__ for metric in evaluator.metrics]
    if len(names) != 1 or not isinstance(evaluator.metrics[0], Accuracy):
        raise VitnasError(
            f"`racing` needs a metric that is a mean over images, mmpretrain's Accuracy alone, but got "
            f'{", ".join(names)}; leave `racing` out'
        )
    return 100.0


def _size(batch: Any) -> int:
    """Bytes of the tensors in a batch."""
    if isinstance(batch, Tensor):
        return batch.numel() * batch.element_size()
    if isinstance(batch, (dict, BaseDataElement)):
        return sum(_size(value) for value in batch.values())
    if isinstance(batch, (list, tuple)):
        return sum(_size(value) for value in batch)
    return 0
