"""Answers as in VQA's official evaluation: their spelling, their scores, and the most frequent ones."""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from vitnas_core.errors import DatasetError
from vitnas_core.integration.metrics import spell_as_vqa

PEOPLE = 10
"""Number of people who answered each question."""


def strip(answer: str) -> str:
    """Put an answer on one line and strip blanks."""
    return answer.replace('\n', ' ').replace('\t', ' ').strip()


@functools.lru_cache(maxsize=1 << 17)
def normalise(answer: str) -> str:
    """Spell an answer as the official evaluation does.

    Lower case; no articles; numbers as digits; contractions with their apostrophe; no punctuation except apostrophes,
    colons, decimal points, and signs that its list lacks, such as %.
    """
    return spell_as_vqa(strip(answer))


def agreement(matches: int) -> float:
    """Score an answer that ``matches`` of ten people gave: min(n / 3, 1), averaged over every nine of them.

    Raises:
        ValueError: ``matches`` is not in 0 to 10.
    """
    if not 0 <= matches <= PEOPLE:
        raise ValueError(f'matches should be 0 to {PEOPLE}, but got {matches}')
    left_out = matches * min((matches - 1) / 3, 1) + (PEOPLE - matches) * min(matches / 3, 1)
    return left_out / PEOPLE


def soft_targets(answers: Sequence[str], weights: Sequence[float]) -> dict[str, float]:
    """Score every answer to a question.

    Args:
        answers: The different answers.
        weights: Fraction of the people who gave each.

    Returns:
        Normalised answer → its score.
    """
    fractions: dict[str, float] = {}
    for answer, weight in zip(answers, weights):
        fractions[normalise(answer)] = fractions.get(normalise(answer), 0.0) + weight
    return {answer: agreement(round(PEOPLE * fraction)) for answer, fraction in fractions.items()}


def score(predicted: str, answers: Sequence[str], weights: Sequence[float]) -> float:
    """Score a prediction, 0 to 1, as the official evaluation does: if all ten people agree, the spelling counts."""
    predicted, answers = strip(predicted), [strip(answer) for answer in answers]
    if len(set(answers)) > 1:
        predicted, answers = normalise(predicted), [normalise(answer) for answer in answers]
    return agreement(round(PEOPLE * sum(weight for answer, weight in zip(answers, weights) if answer == predicted)))


def frequent_answers(annotations: Iterable[Mapping[str, Any]], num: int) -> list[str]:
    """List the most frequent answers, normalised, most frequent first; ties are in alphabetical order.

    Args:
        annotations: Annotations of VQA v2; ``multiple_choice_answer`` is the most common answer.
        num: Number of answers.

    Raises:
        DatasetError: The annotations have fewer answers.
    """
    counts = Counter(normalise(annotation['multiple_choice_answer']) for annotation in annotations)
    counts.pop('', None)
    if len(counts) < num:
        raise DatasetError(f'there are {len(counts):,} different answers, fewer than the {num:,} asked for')
    return sorted(counts, key=lambda answer: (-counts[answer], answer))[:num]


def read_answers(path: str | Path, num: int) -> list[str]:
    """Read the list of answers that a model chooses from.

    Raises:
        DatasetError: The file is missing, or is not a list of ``num`` different answers.
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
