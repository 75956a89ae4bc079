"""``Scorer``: score of an architecture of a supernet on hold-out images that are decoded once."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from mmengine.evaluator import Evaluator
from mmengine.model import BaseModel
from mmengine.runner import Runner
from mmengine.structures import BaseDataElement
from torch import Tensor
from torch.utils.data import DataLoader
from typing_extensions import Self

from ..backbones import elastic_backbone
from ..datasets.order import WholeSampler
from ..errors import VitnasError
from ..spaces import Arch
from .racing import Race, Racing, span_of_mean
from .recalibration import recalibrate
from .steps import check_images, make_step


@dataclass(frozen=True)
class Job:
    """One architecture to score.

    Args:
        arch: The architecture.
        fraction: Fraction of the batches to use, from the first one on. Defaults to 1.
        floor: With racing: score that the architecture must be able to reach. Defaults to None.
    """

    arch: Arch
    fraction: float = 1.0
    floor: float | None = None


@dataclass(frozen=True)
class Result:
    """Score of one architecture.

    Args:
        value: The metric, greater is better; minus infinity if there is none.
        complete: False if racing dropped the architecture, or if there is no value.
        seconds: Time that scoring took.
    """

    value: float
    complete: bool = True
    seconds: float = field(default=0.0, compare=False)


class Scorer:
    """Score architectures with shared weights, one after another, in this process alone.

    Args:
        model: An mm model with one elastic backbone, not wrapped.
        dataloader: The hold-out images, in the order of :class:`WholeSampler`.
        evaluator: mmengine's evaluator with the metrics.
        metric: Name of the value that is the score, e.g. ``'accuracy/top1'``; greater is better. Defaults to None:
            the first value of the metrics.
        racing: When to drop a candidate early; not for a bilateral pattern. Defaults to None: never.
        keep_gb: Keep decoded batches in memory up to this size; decode the others again for every candidate.
            Defaults to 4.
        recalibrate: Number of batches on which batch norms get the statistics of each architecture before it is
            scored. Defaults to 0: they keep those of the supernet's training, which mix all architectures.

    Raises:
        VitnasError: Racing is asked for with a metric that is not a mean over images, a metric counts other images,
            or the metrics have no value of this name.
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
        self.racing, self.recalibrate = racing, recalibrate
        self.num_batches, self.num_samples = len(dataloader), len(dataloader.dataset)  # type: ignore[arg-type]  # a Dataset may lack a length; ours have one
        self._room = keep_gb * 2**30
        self._kept: list[Any] = []
        self._kept_samples = 0
        evaluator.dataset_meta = getattr(dataloader.dataset, 'metainfo', None)
        check_images(evaluator, f'candidates are compared on {self.num_samples} images', self.num_samples)
        self.step = make_step(model, evaluator, metric)
        if racing is not None:
            span_of_mean(evaluator)
            if len(self.backbone.pattern.sides) > 1:
                raise VitnasError(
                    "`racing` cannot drop candidates of sharing='bilateral', whose score is a mean of two"
                )

    @classmethod
    def build(cls, model: BaseModel, dataloader: Mapping[str, Any], evaluator: Any, **settings: Any) -> Self:
        """Build a scorer from the configs of images and metrics, without a runner.

        Args:
            model: The model.
            dataloader: Config of the images; see :func:`whole`.
            evaluator: Config of the metric or metrics.
            **settings: Other arguments of the scorer.
        """
        loader = Runner.build_dataloader(whole(dataloader), seed=0)
        return cls(model, loader, Evaluator(metrics=copy.deepcopy(evaluator)), **settings)

    @property
    def metric(self) -> str | None:
        """Name of the score; None if only the first score can tell."""
        return self.step.metric

    @torch.no_grad()
    def score(self, job: Job) -> Result:
        """Score an architecture; with a bilateral pattern, take the mean over both sides (BCNet)."""
        start = time.perf_counter()
        self.activate(job.arch)
        wanted = max(1, math.ceil(job.fraction * self.num_batches - 1e-9))
        sides = [
            self._run(wanted, job.floor if job.fraction == 1.0 else None) for _ in self.backbone.pattern.each_side()
        ]
        value = sum(side.value for side in sides) / len(sides)
        return Result(value, all(side.complete for side in sides), round(time.perf_counter() - start, 6))

    def _run(self, wanted: int, floor: float | None) -> Result:
        """Run the active side on the first batches."""
        self.step.start()
        race = None
        if self.racing is not None and floor is not None:
            race = Race(self.racing, self.step, floor, self.num_samples, self.num_batches)
        for batch in self._batches(wanted):
            self.step.run(batch)
            if race is not None and race.is_lost():
                return Result(self.step.value(), complete=False)
        value = self.step.value()
        return Result(value, complete=math.isfinite(value))

    def activate(self, arch: Arch) -> None:
        """Switch the model to an architecture, ready to be scored."""
        self.model.eval()
        self.backbone.set_arch(arch)
        if self.recalibrate:
            recalibrate(self.model, self.step.forward, self._batches(min(self.recalibrate, self.num_batches)))

    def _batches(self, wanted: int) -> Iterator[Any]:
        """The first batches: kept ones, then newly decoded ones, which are kept while there is room."""
        yield from self._kept[:wanted]
        missing = wanted - len(self._kept)
        if missing <= 0:
            return
        sampler, keep = self.dataloader.sampler, self._room > 0
        assert isinstance(sampler, WholeSampler)
        sampler.start = self._kept_samples
        try:
            for _, decoded in zip(range(missing), self.dataloader):
                batch = self.step.keep(decoded)
                if keep:
                    self._room -= _size(batch)
                    keep = self._room > 0
                if keep:
                    self._kept.append(batch)
                    self._kept_samples += self.dataloader.batch_size or 0
                yield batch
        finally:
            sampler.start = 0


def whole(dataloader: Mapping[str, Any]) -> dict[str, Any]:
    """Config of a dataloader that reads every image once, in one fixed random order, on every rank."""
    data = {name: value for name, value in dataloader.items() if name not in ('sampler', 'batch_sampler')}
    return {**copy.deepcopy(data), 'sampler': dict(type='vitnas.WholeSampler'), 'drop_last': False}


def _size(batch: Any) -> int:
    """Bytes of the tensors in a batch."""
    if isinstance(batch, Tensor):
        return batch.numel() * batch.element_size()
    if isinstance(batch, (dict, BaseDataElement)):
        return sum(_size(value) for value in batch.values())
    if isinstance(batch, (list, tuple)):
        return sum(_size(value) for value in batch)
    return 0
