"""``Scorer``: score of an architecture of a supernet on hold-out images; ``BatchScorer``: on one batch."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from mmengine.evaluator import Evaluator
from mmengine.model import BaseModel
from torch.utils.data import DataLoader
from typing_extensions import Self

from ..backbones import elastic_backbone
from ..errors import VitnasError
from ..spaces import Arch
from .batches import KeptBatches, whole_loader
from .racing import Race, Racing, span_of_mean
from .recalibration import calibrate
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


class BatchScorer:
    """Score architectures with shared weights on batches that are given, in this process alone.

    Args:
        model: An mm model with one elastic backbone, not wrapped.
        evaluator: mmengine's evaluator with the metrics.
        dataset: Dataset of the batches, for its ``metainfo``.
        metric: Name of the value that is the score, e.g. ``'accuracy/top1'``; greater is better. Defaults to None:
            the first value of the metrics.
        num_samples: Number of images that every architecture is scored on. Defaults to None: a new mini-batch each
            time.

    Raises:
        VitnasError: A metric counts other images, or the metrics have no value of this name.
    """

    def __init__(
        self,
        model: BaseModel,
        evaluator: Evaluator,
        dataset: Any,
        metric: str | None = None,
        num_samples: int | None = None,
    ) -> None:
        self.model, self.evaluator = model, evaluator
        self.backbone = elastic_backbone(model)
        what = 'a reward is the score of a mini-batch'
        if num_samples is not None:
            what = f'candidates are compared on {num_samples} images'
        check_images(evaluator, what, num_samples)
        evaluator.dataset_meta = getattr(dataset, 'metainfo', None)
        self.step = make_step(model, evaluator, metric)

    @property
    def metric(self) -> str | None:
        """Name of the score; None if only the first score can tell.

        Metrics name their values only when they compute them. A trial batch when built would run the model before its
        weights are loaded, and a detector that finds nothing in it has no value.
        """
        return self.step.metric

    def keep(self, batch: Any) -> Any:
        """Return the data of a decoded batch to keep in memory, for :meth:`score_batch`."""
        return self.step.keep(batch)

    @torch.no_grad()
    def score_batch(self, arch: Arch, batch: Any, recalibrate: bool = False) -> float:
        """Return the score of an architecture on one batch; minus infinity if there is none.

        Args:
            arch: The architecture.
            batch: A batch, as :meth:`keep` returns it.
            recalibrate: Whether batch norms get the statistics of the same batch first. Defaults to False.
        """
        self._activate(arch, [batch] if recalibrate else None)
        self.step.start()
        self.step.run(batch)
        return self.step.value()

    def _activate(self, arch: Arch, calibration: Iterable[Any] | None) -> None:
        """Switch the model to an architecture; give its batch norms the statistics of some batches."""
        self.model.eval()
        if calibration is None:
            self.backbone.set_arch(arch)
        else:
            calibrate(self.model, arch, calibration, run=self.step.forward)


class Scorer(BatchScorer):
    """Score architectures with shared weights on the same images, one after another, in this process alone.

    Args:
        model: An mm model with one elastic backbone, not wrapped.
        dataloader: The hold-out images, in the order of :class:`WholeSampler`.
        evaluator: mmengine's evaluator with the metrics.
        metric: Name of the value that is the score, e.g. ``'accuracy/top1'``; greater is better. Defaults to None:
            the first value of the metrics.
        racing: Bound that drops candidates early; not for a two-sided pattern. Defaults to None: none is dropped.
        keep_gb: Keep decoded batches in memory up to this size; decode the others again for every candidate.
            Defaults to 4.
        recalibrate: Number of batches on which batch norms get the statistics of each architecture before it is
            scored. Defaults to 0: they keep those of the supernet's training, which mix all architectures.
        calibration: Images of these batches, in the order of :class:`WholeSampler`. Defaults to None: the images of
            ``dataloader``.

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
        calibration: DataLoader | None = None,
    ) -> None:
        num_samples = len(dataloader.dataset)  # type: ignore[arg-type]  # a Dataset may lack a length; ours have one
        super().__init__(model, evaluator, dataloader.dataset, metric, num_samples)
        self.num_batches, self.num_samples = len(dataloader), num_samples
        self.racing, self.recalibrate = racing, recalibrate
        self.batches = KeptBatches(dataloader, self.keep, keep_gb)
        self.calibration = self.batches
        if calibration is not None:
            self.calibration = KeptBatches(calibration, self.keep, keep_gb)
        if racing is not None:
            span_of_mean(evaluator)
            if self.backbone.pattern.two_sided:
                raise VitnasError(
                    f'`racing` cannot drop candidates of sharing={self.backbone.pattern.name!r}, whose score is a '
                    f'mean of two'
                )

    @classmethod
    def build(
        cls,
        model: BaseModel,
        dataloader: Mapping[str, Any],
        evaluator: Any,
        calibration: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> Self:
        """Build a scorer from the configs of images and metrics, without a runner.

        Args:
            model: The model.
            dataloader: Config of the images; see :func:`whole`.
            evaluator: Config of the metric or metrics.
            calibration: Config of the images for batch norms. Defaults to None: those of ``dataloader``.
            **settings: Other arguments of the scorer.
        """
        own = None if calibration is None else whole_loader(calibration)
        metrics = Evaluator(metrics=copy.deepcopy(evaluator))
        return cls(model, whole_loader(dataloader), metrics, calibration=own, **settings)

    @torch.no_grad()
    def score(self, job: Job) -> Result:
        """Score an architecture."""
        start = time.perf_counter()
        self.activate(job.arch)
        wanted = max(1, math.ceil(job.fraction * self.num_batches - 1e-9))
        result = self._run(wanted, job.floor if job.fraction == 1.0 else None)
        return replace(result, seconds=round(time.perf_counter() - start, 6))

    def _run(self, wanted: int, floor: float | None) -> Result:
        """Run the active architecture on the first batches."""
        self.step.start()
        race = None
        if self.racing is not None and floor is not None:
            race = Race(self.racing, self.step, floor, self.num_samples, self.num_batches)
        for batch in self.batches.first(wanted):
            self.step.run(batch)
            if race is not None and race.is_lost():
                return Result(self.step.value(), complete=False)
        value = self.step.value()
        return Result(value, complete=math.isfinite(value))

    def activate(self, arch: Arch) -> None:
        """Switch the model to an architecture, ready to be scored."""
        self._activate(arch, self.calibration.first(self.recalibrate) if self.recalibrate else None)
