"""Running batches through a model for the metrics of any task, and reading the score from the metrics."""

from __future__ import annotations

import copy
import io
import logging
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from typing import Any

import numpy as np
import torch
from mmengine.evaluator import BaseMetric, Evaluator
from mmengine.logging import MMLogger
from mmengine.model import BaseModel

from ..backbones import elastic_backbone
from ..errors import VitnasError
from ..integration.heads import predicts_softmax
from ..integration.metrics import annotated_images, own_values

# The mm toolboxes report these in percent; others, such as mmdet's mAP, go from 0 to 1.
_PERCENT = re.compile(r'accuracy|\btop-?\d|precision|recall|f1-score|miou|macc|aacc|mdice', re.IGNORECASE)


def in_percent(metric: str) -> bool:
    """Return whether the values of a metric are percentages, judged by its name."""
    return bool(_PERCENT.search(metric))


class AnyStep:
    """Score as mmengine's validation does: ``val_step``, then ``process`` of the metrics. Fits any task.

    With a two-sided sharing pattern, every batch runs on both sides, and a value is the mean of both (BCNet).

    Args:
        model: The model.
        evaluator: The metrics.
        metric: Name of the value that is the score, e.g. ``'accuracy/top1'``. Defaults to None: the first value.

    Attributes:
        metric (str, optional): Name of the score; None until it is known.
    """

    def __init__(self, model: BaseModel, evaluator: Evaluator, metric: str | None = None) -> None:
        self.model, self.evaluator, self.metric = model, evaluator, metric
        self.backbone = elastic_backbone(model)
        others = len(self.backbone.pattern.sides) - 1
        self._of_sides = [evaluator, *(copy.deepcopy(evaluator) for _ in range(others))]
        self._built = [(metric, dict(vars(metric))) for side in self._of_sides for metric in side.metrics]

    def start(self) -> None:
        """Reset the metrics to their state when built: no results, and nothing remembered of other images.

        mmdet's ``CocoMetric``, for one, remembers the objects of the images that it met first.
        """
        for metric, built in self._built:
            vars(metric).clear()
            vars(metric).update(built, results=[])

    def keep(self, batch: Any) -> Any:
        """Copy of a decoded batch to keep in memory; each tensor of a worker holds an open file."""
        return copy.deepcopy(batch)

    def forward(self, batch: Any) -> Any:
        """Output of the model for a batch."""
        return self.model.val_step(batch)

    def run(self, batch: Any) -> None:
        """Add the results of a batch to the metrics."""
        for _, evaluator in zip(self.backbone.pattern.each_side(), self._of_sides):
            self.process(evaluator, batch)

    def process(self, evaluator: Evaluator, batch: Any) -> None:
        """Add the results of a batch on the active side to metrics."""
        evaluator.process(self.forward(batch), batch)

    def values(self, num_samples: int) -> dict[str, Any]:
        """All values of the metrics since :meth:`start`, over all ranks, as mmengine's validation gives them.

        Args:
            num_samples: Number of images on all ranks, each counted once.
        """
        found = [evaluator.evaluate(num_samples) for evaluator in self._of_sides]
        if len(found) == 1:
            return found[0]
        return {name: np.mean([values[name] for values in found], axis=0).tolist() for name in found[0]}

    def value(self) -> float:
        """Score of the batches since :meth:`start`, in this process alone.

        Returns:
            The score; minus infinity if there is none, as for a detector that finds nothing.

        Raises:
            VitnasError: The metrics have no value of the name that was asked for.
        """
        sides = [self._value(evaluator) for evaluator in self._of_sides]
        return sum(sides) / len(sides)

    def _value(self, evaluator: Evaluator) -> float:
        values: dict[str, Any] = {}
        for metric in evaluator.metrics:
            # Not evaluate(), which gathers results from all ranks: each may score another architecture.
            with _quiet():
                values.update(computed(metric, metric.results))
        if values:
            self._resolve(values)
        value = float(values.get(self.metric, math.nan)) if self.metric else math.nan
        return value if math.isfinite(value) else -math.inf

    def _resolve(self, values: Mapping[str, Any]) -> None:
        """Choose the first value if none was asked for; refuse a name that is not there."""
        self.metric = self.metric or next(iter(values))
        if self.metric not in values:
            raise VitnasError(f'`metric` is {self.metric}; the evaluator gives {", ".join(values)}')


class AccuracyStep(AnyStep):
    """Accuracy of an image classifier: the same results as :class:`AnyStep`, without building an object per sample.

    Building those objects takes longer than running a small network. Images stay as decoded (bytes), but stacked.
    The name of the score is known from the start.

    Raises:
        VitnasError: The metrics have no value of the name that was asked for.
    """

    def __init__(self, model: BaseModel, evaluator: Evaluator, metric: str | None = None) -> None:
        super().__init__(model, evaluator, metric)
        classes = getattr(model.head, 'num_classes', None)
        if type(classes) is int and classes >= max(evaluator.metrics[0].topk):
            made_up = {'pred_score': torch.zeros(classes), 'gt_label': torch.zeros(1, dtype=torch.int64)}
            self._resolve(computed(evaluator.metrics[0], [made_up]))

    @staticmethod
    def fits(model: BaseModel, evaluator: Evaluator) -> bool:
        """Return whether model and metrics are mmpretrain's own in every part that this step leaves out."""
        from mmpretrain.evaluation import Accuracy
        from mmpretrain.models import ImageClassifier
        from mmpretrain.models.utils import ClsDataPreprocessor

        return (
            [type(metric) for metric in evaluator.metrics] == [Accuracy]
            and type(model) is ImageClassifier
            and type(model.data_preprocessor) is ClsDataPreprocessor
            and predicts_softmax(getattr(model, 'head', None))
        )

    def keep(self, batch: Any) -> Any:
        """Stack the images and collect their labels; images of different sizes stay apart."""
        images, labels = batch['inputs'], [sample.gt_label.cpu().clone() for sample in batch['data_samples']]
        same = all(image.shape == images[0].shape for image in images)
        return {'inputs': torch.stack(list(images)) if same else copy.deepcopy(images), 'labels': labels}

    def forward(self, batch: Any) -> Any:
        """Logits of a batch."""
        inputs = self.model.data_preprocessor({'inputs': batch['inputs']}, False)['inputs']
        return self.model(inputs, mode='tensor')

    def process(self, evaluator: Evaluator, batch: Any) -> None:
        """Add the results of a batch to the metric, in the form that its own ``process`` gives them."""
        scores = self.forward(batch).softmax(1).cpu().unbind()
        evaluator.metrics[0].results += [
            {'pred_score': score, 'gt_label': label} for score, label in zip(scores, batch['labels'])
        ]


def make_step(model: BaseModel, evaluator: Evaluator, metric: str | None = None) -> AnyStep:
    """Build the quickest step that fits."""
    return (AccuracyStep if AccuracyStep.fits(model, evaluator) else AnyStep)(model, evaluator, metric)


def computed(metric: BaseMetric, results: list[Any]) -> dict[str, Any]:
    """Values of a metric for some of its results, by their full names such as ``accuracy/top1``."""
    found = own_values(metric, results)
    return {f'{metric.prefix}/{key}' if metric.prefix else key: value for key, value in found.items()}


def check_images(evaluator: Evaluator, what: str, images: int | None = None) -> None:
    """Refuse metrics that count other images than the ones they are given.

    Args:
        evaluator: The metrics, as built.
        what: What is scored, e.g. ``'a reward is the score of a mini-batch'``.
        images: Number of images. Defaults to None: a new mini-batch each time.

    Raises:
        VitnasError: A COCO metric counts the objects of all images of its annotation file.
    """
    for metric in evaluator.metrics:
        annotated = annotated_images(metric)
        if annotated is not None and annotated != images:
            raise VitnasError(
                f'{what}, but {type(metric).__name__} counts the objects of all {annotated} images of '
                f'its `ann_file`; leave that out, and let PackDetInputs pack the objects of each image: '
                f'meta_keys=(…, "instances")'
            )


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence what metrics log and print: tables of every class, for every architecture."""
    logger = MMLogger.get_current_instance()
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with redirect_stdout(io.StringIO()):
            yield
    finally:
        logger.setLevel(level)
