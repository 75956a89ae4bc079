"""Private parts of metrics: scores of one process or of a few images, and the spelling of VQA's evaluation."""

from __future__ import annotations

from typing import Any

from mmengine.evaluator import BaseMetric
from mmengine.evaluator.metric import _to_cpu


def own_values(metric: BaseMetric, results: list[Any] | None = None) -> dict[str, Any]:
    """Compute a metric from the results of this process.

    The public ``evaluate`` gathers the results of all ranks, each of which may have scored another architecture. It
    moves results to the CPU first, as here.

    Args:
        metric: The metric.
        results: Which results. Defaults to None: all that the metric has.
    """
    return metric.compute_metrics(_to_cpu(metric.results if results is None else results))


def annotated_images(metric: BaseMetric) -> int | None:
    """Return the number of images in the annotation file of a COCO metric; None for a metric without such a file.

    mmdet's ``CocoMetric`` counts the objects of all these images, whichever images it is given, without a warning.
    """
    file = getattr(metric, '_coco_api', None)
    return None if file is None else len(file.get_img_ids())


def spell_as_vqa(answer: str) -> str:
    """Spell an answer on one line as VQA's official evaluation does.

    mmpretrain has its two steps as private functions, which its public ``VQAAcc`` calls only while it scores.
    """
    from mmpretrain.evaluation.metrics.vqa import _process_digit_article, _process_punctuation

    return _process_digit_article(_process_punctuation(answer))
