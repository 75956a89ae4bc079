"""How one batch is run and its results are handed to the metrics: any task, or plain classification without detours."""

from __future__ import annotations

import copy
from typing import Any

import torch
from mmengine.evaluator import Evaluator
from mmengine.model import BaseModel


class AnyStep:
    """What mmengine's validation does: ``val_step``, then the metrics' ``process``; for any task.

    Args:
        model: The model.
        evaluator: The metrics.
    """

    def __init__(self, model: BaseModel, evaluator: Evaluator) -> None:
        self.model, self.evaluator = model, evaluator

    def prepare(self, batch: Any) -> Any:
        """What is kept of a decoded batch: a copy, as each tensor of a worker holds an open file."""
        return copy.deepcopy(batch)

    def run(self, batch: Any) -> None:
        """Add the results of a batch to the metrics."""
        self.evaluator.process(self.model.val_step(batch), batch)


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

    def run(self, batch: Any) -> None:
        """Add the results of a batch to the metric, in the form that its own ``process`` gives them."""
        inputs = self.model.data_preprocessor({'inputs': batch['inputs']}, False)['inputs']
        scores = self.model(inputs, mode='tensor').softmax(1).cpu().unbind()
        self.evaluator.metrics[0].results += [
            {'pred_score': score, 'gt_label': label} for score, label in zip(scores, batch['labels'])
        ]
