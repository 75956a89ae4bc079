"""Answers as VQA's official evaluation sees them: how they are spelt, how much agreement counts, which are frequent."""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mmpretrain.evaluation.metrics.vqa import _process_digit_article, _process_punctuation

from vitnas_core.errors import DatasetError

PEOPLE = 10
"""How many answered each question."""


def strip(answer: str) -> str:
    """An answer on one line, without blanks around it."""
    return answer.replace('\n', ' ').replace('\t', ' ').strip()


@functools.lru_cache(maxsize=1 << 17)
def normalise(answer: str) -> str:
    """An answer in the official spelling.

    Lower case; no articles; numbers as digits; contractions with their apostrophe; no punctuation, but for apostrophes,
    colons, points of decimal numbers, and signs such as % that its list does not have.
    """
    return _process_digit_article(_process_punctuation(strip(answer)))


def agreement(matches: int) -> float:
    """How right an answer is that so many of ten people gave: min(n / 3, 1), the mean over nine of them.

    Raises:
        ValueError: There are not 0 to 10.
    """
    if not 0 <= matches <= PEOPLE:
        raise ValueError(f'matches should be 0 to {PEOPLE}, but got {matches}')
    left_out = matches * min((matches - 1) / 3, 1) + (PEOPLE - matches) * min(matches / 3, 1)
    return left_out / PEOPLE


def soft_targets(answers: Sequence[str], weights: Sequence[float]) -> dict[str, float]:
    """How right each answer to a question is.

    Args:
        answers: The different answers.
        weights: Which share of the people gave each.

    Returns:
        Normalised answer → its score.
    """
    shares: dict[str, float] = {}
    for answer, weight in zip(answers, weights):
        shares[normalise(answer)] = shares.get(normalise(answer), 0.0) + weight
    return {answer: agreement(round(PEOPLE * share)) for answer, share in shares.items()}


def score(predicted: str, answers: Sequence[str], weights: Sequence[float]) -> float:
    """How right a predicted answer is, 0 to 1, as in the official evaluation: spelling counts where all ten agree."""
    predicted, answers = strip(predicted), [strip(answer) for answer in answers]
    if len(set(answers)) > 1:
        predicted, answers = normalise(predicted), [normalise(answer) for answer in answers]
    return agreement(round(PEOPLE * sum(weight for answer, weight in zip(answers, weights) if answer == predicted)))


def frequent_answers(annotations: Iterable[Mapping[str, Any]], num: int) -> list[str]:
    """The most frequent answers, normalised, most frequent first, equals in the order of the alphabet.

    Args:
        annotations: Of VQA v2's files; ``multiple_choice_answer`` is what most people answered.
        num: How many.

    Raises:
        DatasetError: There are fewer.
    """
    counts = Counter(normalise(annotation['multiple_choice_answer']) for annotation in annotations)
    counts.pop('', None)
    if len(counts) < num:
        raise DatasetError(f'there are {len(counts):,} different answers, fewer than the {num:,} that are asked for')
    return sorted(counts, key=lambda answer: (-counts[answer], answer))[:num]


def read_answers(path: str | Path, num: int) -> list[str]:
    """The list of answers that a model chooses from.

    Raises:
        DatasetError: There is no such file, or it is no list of so many different answers.
    """
    path = Path(path)
    if not path.is_file():
        raise DatasetError(f'there is no list of answers {path}; projects/vqa/tools/vqa_answers.py makes one')
    try:
        answers = json.loads(path.read_text(encoding='utf-8'))
    except ValueError:
        answers = None
    if not isinstance(answers, list) or not all(isinstance(answer, str) for answer in answers):
        raise DatasetError(f'{path} should hold a JSON list of answers')
    if len(answers) != num or len(set(answers)) != num:
        raise DatasetError(f'{path} should hold {num:,} different answers, but has {len(set(answers)):,}')
    return answers
