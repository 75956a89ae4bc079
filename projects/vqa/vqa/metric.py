"""VQA accuracy by the official formula."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean
from typing import Any

from mmengine.evaluator import BaseMetric

from vitnas_core.errors import DatasetError
from vitnas_core.registry import METRICS

from .answers import score


@METRICS.register_module()
class VQAAccuracy(BaseMetric):
    """Mean score of the predicted answers in percent, overall and for each answer type.

    mmpretrain's ``VQAAcc`` scores an answer that one of ten people gave as 1/3. The official evaluation leaves each
    person out in turn, which gives 0.3, and 0.6 and 0.9 for two and three people.
    """

    default_prefix = 'VQA'

    def process(self, data_batch: Any, data_samples: Sequence[dict]) -> None:
        """Keep predictions and people's answers.

        Raises:
            DatasetError: A sample has no answers to compare with.
        """
        for sample in data_samples:
            if sample.get('gt_answer') is None:
                raise DatasetError(
                    f'question {sample.get("question_id")} has no answers to compare with; give ann_file, or '
                    f'test_evaluator=dict(type="ReportVQA", file_path=…) for the file that the server takes'
                )
            keys = ('pred_answer', 'gt_answer', 'gt_answer_weight', 'answer_type')
            self.results.append({key: sample.get(key) for key in keys})

    def compute_metrics(self, results: list[dict]) -> dict[str, float]:
        """Compute ``acc`` and, if types are known, ``acc_yes/no``, ``acc_number`` and ``acc_other``."""
        scores: dict[str, list[float]] = {'acc': []}
        for result in results:
            value = 100 * score(result['pred_answer'], result['gt_answer'], result['gt_answer_weight'])
            scores['acc'].append(value)
            if result['answer_type']:
                scores.setdefault(f'acc_{result["answer_type"]}', []).append(value)
        return {name: mean(values) for name, values in sorted(scores.items())}
