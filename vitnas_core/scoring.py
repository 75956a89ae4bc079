"""Scoring a model batch by batch: how a batch is run for the metrics of any task, and what the metrics make of it."""

from __future__ import annotations

import copy
import io
import logging
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any

import torch
from mmengine.evaluator import Evaluator
from mmengine.evaluator.metric import _to_cpu
from mmengine.logging import MMLogger
from mmengine.model import BaseModel

from .errors import VitnasError

# Toolboxes of mm report these in percent; mmdet's mAP, for one, is a part of 1.
_PERCENT = re.compile(r'accuracy|\btop-?\d|precision|recall|f1-score|miou|macc|aacc|mdice', re.IGNORECASE)


def in_percent(metric: str) -> bool:
    """Whether a metric's values are percentages, judged by its name."""
    return bool(_PERCENT.search(metric))


class AnyStep:
    """What mmengine's validation does: ``val_step``, then the metrics' ``process``; for any task.

    Args:
        model: The model.
        evaluator: The metrics.
    """

    def __init__(self, model: BaseModel, evaluator: Evaluator) -> None:
        self.model, self.evaluator = model, evaluator
        self._built = [dict(vars(metric)) for metric in evaluator.metrics]

    def start(self) -> None:
        """Set the metrics back to how they were built: without results, and without what they know of other images.

        mmdet's ``CocoMetric``, for one, keeps the objects of the images that it met first.
        """
        for metric, built in zip(self.evaluator.metrics, self._built):
            vars(metric).clear()
            vars(metric).update(built, results=[])

    def prepare(self, batch: Any) -> Any:
        """What is kept of a decoded batch: a copy, as each tensor of a worker holds an open file."""
        return copy.deepcopy(batch)

    def forward(self, batch: Any) -> Any:
        """What the model makes of a batch."""
        return self.model.val_step(batch)

    def run(self, batch: Any) -> None:
        """Add the results of a batch to the metrics."""
        self.evaluator.process(self.forward(batch), batch)


class AccuracyStep(AnyStep):
    """The same results for the accuracy of an image classifier, without an object a sample on the way.

    Making those objects takes longer than running a small network. Images stay as they were decoded (bytes),
    but stacked.
    """

    @staticmethod
    def fits(model: BaseModel, evaluator: Evaluator) -> bool:
        """Whether a model and its metrics are mmpretrain's own in everything that this step leaves out."""
        from mmpretrain.evaluation import Accuracy
        from mmpretrain.models import ClsHead, ImageClassifier
        from mmpretrain.models.utils import ClsDataPreprocessor

        head = getattr(model, 'head', None)
        return (
            [type(metric) for metric in evaluator.metrics] == [Accuracy]
            and type(model) is ImageClassifier
            and type(model.data_preprocessor) is ClsDataPreprocessor
            and isinstance(head, ClsHead)
            and type(head).predict is ClsHead.predict
            and type(head)._get_predictions is ClsHead._get_predictions
        )

    def prepare(self, batch: Any) -> Any:
        """The stacked images, and each one's label; images of different sizes stay apart."""
        images, labels = batch['inputs'], [sample.gt_label.cpu().clone() for sample in batch['data_samples']]
        same = all(image.shape == images[0].shape for image in images)
        return {'inputs': torch.stack(list(images)) if same else copy.deepcopy(images), 'labels': labels}

    def forward(self, batch: Any) -> Any:
        """The logits of a batch."""
        inputs = self.model.data_preprocessor({'inputs': batch['inputs']}, False)['inputs']
        return self.model(inputs, mode='tensor')

    def run(self, batch: Any) -> None:
        """Add the results of a batch to the metric, in the form that its own ``process`` gives them."""
        scores = self.forward(batch).softmax(1).cpu().unbind()
        self.evaluator.metrics[0].results += [
            {'pred_score': score, 'gt_label': label} for score, label in zip(scores, batch['labels'])
        ]


def make_step(model: BaseModel, evaluator: Evaluator) -> AnyStep:
    """The quickest step that fits."""
    return (AccuracyStep if AccuracyStep.fits(model, evaluator) else AnyStep)(model, evaluator)


def check_images(evaluator: Evaluator, what: str, images: int | None = None) -> None:
    """Refuse metrics that score other images than those that they are given.

    Args:
        evaluator: The metrics, as they were built.
        what: What is scored, e.g. ``'a reward is the score of a mini-batch'``.
        images: How many images there are; None where it is a part of them, another each time.

    Raises:
        VitnasError: A metric of COCO counts the objects of all images of its file of annotations.
    """
    for metric in evaluator.metrics:
        file = getattr(metric, '_coco_api', None)
        if file is not None and len(file.get_img_ids()) != images:
            raise VitnasError(
                f'{what}, but {type(metric).__name__} counts the objects of all {len(file.get_img_ids())} images of '
                f'its `ann_file`; leave that out, and let PackDetInputs pack the objects of each image: '
                f'meta_keys=(…, "instances")'
            )


@contextmanager
def _quiet() -> Iterator[None]:
    """Leave out what metrics log and print by themselves: tables of every class, for every architecture."""
    logger = MMLogger.get_current_instance()
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with redirect_stdout(io.StringIO()):
            yield
    finally:
        logger.setLevel(level)


def metric_value(evaluator: Evaluator, name: str | None) -> tuple[str | None, float]:
    """What the metrics say of the results of this process, without asking other ranks.

    Args:
        evaluator: The metrics with their results.
        name: Which value is wanted, e.g. ``'accuracy/top1'``; None for the first.

    Returns:
        The name of the value (None where there is none at all) and the value; minus infinity where there is none,
        as for a detector that finds nothing.

    Raises:
        VitnasError: The metrics have no such value.
    """
    values: dict[str, Any] = {}
    for metric in evaluator.metrics:
        # Not evaluate(): that gathers the images of all ranks, and each may have another architecture.
        with _quiet():
            found = metric.compute_metrics(_to_cpu(metric.results))
        values.update({f'{metric.prefix}/{key}' if metric.prefix else key: v for key, v in found.items()})
    name = name or next(iter(values), None)
    if name is None:
        return None, -math.inf
    if values and name not in values:
        raise VitnasError(f'`metric` is {name}; the evaluator gives {", ".join(values)}')
    value = float(values.get(name, math.nan))
    return name, value if math.isfinite(value) else -math.inf
