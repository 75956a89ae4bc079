"""VQA v2 in its usual files: mmpretrain's dataset with clear errors, and several questions per image."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mmpretrain.datasets.coco_vqa import COCOVQA  # mmpretrain registers it only beside transformers

from vitnas_core.errors import DatasetError
from vitnas_core.registry import DATASETS
from vitnas_core.utils import checks

OF_A_QUESTION = ('question', 'question_id', 'gt_answer', 'gt_answer_weight', 'answer_type')
"""Fields that are lists if an image has several questions."""

NEEDED: dict[str, dict[str, type]] = {
    'questions': {'image_id': int, 'question_id': int, 'question': str},
    'annotations': {'question_id': int, 'answers': list},
}
"""Fields that every entry of VQA's files needs, with their types."""


@DATASETS.register_module()
class VQADataset(COCOVQA):
    """mmpretrain's ``COCOVQA``, optionally with several questions per image.

    Args:
        questions_per_image: Number of questions about an image in one sample; the backbone then runs once for all of
            them. An epoch still has every question once. Defaults to None: one question per sample.
        **kwargs: Arguments of ``COCOVQA``: ``data_root``, ``data_prefix``, ``question_file``, ``ann_file``, ….

    Raises:
        DatasetError: A file or an image is missing, the answers belong to other questions, or
            ``questions_per_image`` is not a positive number.
    """

    def __init__(self, questions_per_image: int | None = None, **kwargs: Any) -> None:
        if questions_per_image is not None:
            checks.whole('questions_per_image', questions_per_image, error=DatasetError)
        self.questions_per_image = questions_per_image
        super().__init__(**kwargs)

    def load_data_list(self) -> list[dict]:
        """Load the questions or, with ``questions_per_image``, images with some of their questions."""
        try:
            infos = super().load_data_list()
        except (OSError, KeyError, TypeError, ValueError, AssertionError) as err:
            raise DatasetError(self._explain() or f'{self.question_file} cannot be read: {err!r}') from err
        if self.questions_per_image is None:
            return infos
        return list(group(infos, self.questions_per_image))

    def _explain(self) -> str | None:
        """Explain what is wrong with the files; None if they are not the problem."""
        for path in (self.question_file, self.ann_file, self.data_prefix['img_path']):
            if path and not Path(path).exists():
                return f'{path} is not there'
        lists: dict[str, list[dict]] = {}
        for path, key in ((self.question_file, 'questions'), (self.ann_file, 'annotations')):
            if path:
                content = _read_json(Path(path))
                if not isinstance(content, dict) or not isinstance(content.get(key), list):
                    return f'{path} should be a JSON object with a list of {key}'
                lists[key] = content[key]
                for i, entry in enumerate(lists[key]):
                    if wrong := [name for name, kind in NEEDED[key].items() if not isinstance(entry.get(name), kind)]:
                        kind = NEEDED[key][wrong[0]].__name__
                        return f'{key}[{i}].{wrong[0]} of {path} should be of type {kind}, got {entry.get(wrong[0])!r}'
        questions = lists['questions']
        ids = [one['question_id'] for one in questions]
        answered = [one['question_id'] for one in lists.get('annotations', questions)]
        if ids != answered:
            differ = next((a for a, b in zip(ids, answered) if a != b), None)
            first = '' if differ is None else f', the first is {differ}'
            return (
                f'{self.ann_file} should answer the questions of {self.question_file}, in their order: it has '
                f'{len(answered):,} answers to {len(ids):,} questions{first}; is it the file of another split?'
            )
        index = self._create_image_index()
        missing = sorted({one['image_id'] for one in questions} - set(index))
        if missing:
            folder = self.data_prefix['img_path']
            return (
                f'{len(missing):,} of the images of {self.question_file} are not in {folder}, the first is '
                f'{missing[0]}: its file should have {missing[0]:012} in its name'
            )
        return None


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding='utf-8'))
    except ValueError:
        return None


def group(infos: list[dict], size: int) -> Iterator[dict]:
    """Group the questions of an image, at most ``size`` per sample; images keep the order of their first question."""
    of_image: dict[int, list[dict]] = {}
    for info in infos:
        of_image.setdefault(info['image_id'], []).append(info)
    for found in of_image.values():
        for start in range(0, len(found), size):
            part = found[start : start + size]
            lists = {key: [info[key] for info in part] for key in OF_A_QUESTION if key in part[0]}
            yield {'image_id': part[0]['image_id'], 'img_path': part[0]['img_path'], **lists}
