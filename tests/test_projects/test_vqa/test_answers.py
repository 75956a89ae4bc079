"""Answers: the official spelling, the official score, and the metric made of both."""

import json
from itertools import combinations
from pathlib import Path

import pytest
from mmpretrain.evaluation.metrics import VQAAcc

from projects.vqa.vqa import agreement, frequent_answers, normalise, read_answers, score, soft_targets
from vitnas_core.errors import DatasetError
from vitnas_core.registry import METRICS


# As the page of the evaluation has them (visualqa.org/evaluation.html).
@pytest.mark.parametrize(
    ('answer', 'expected'),
    [
        ('Yes', 'yes'),  # lower case
        ('yes.', 'yes'),  # no periods
        ('2.5', '2.5'),  # but that of a decimal number
        ('two', '2'),  # number words to digits
        ('none', '0'),
        ('the beach', 'beach'),  # no articles
        ('a dog and an apple', 'dog and apple'),
        ('dont', "don't"),  # the apostrophe of a contraction
        ("girl's", "girl's"),  # and of a possessive
        ('2:50 pm', '2:50 pm'),  # a colon
        ('bus/train', 'bus train'),  # other punctuation is a blank
        ('100,978', '100978'),  # but between digits
        (' on\nthe\ttable ', 'on table'),
    ],
)
def test_spelling(answer: str, expected: str) -> None:
    assert normalise(answer) == expected


def official(matches: int) -> float:
    """By the words of the page: the mean over all sets of nine people of min(how many of them gave it / 3, 1)."""
    people = [True] * matches + [False] * (10 - matches)
    nines = list(combinations(people, 9))
    return sum(min(sum(nine) / 3, 1) for nine in nines) / len(nines)


@pytest.mark.parametrize('matches', range(11))
def test_agreement(matches: int) -> None:
    assert agreement(matches) == pytest.approx(official(matches), abs=1e-12)


@pytest.mark.parametrize('matches', [-1, 11])
def test_agreement_of_ten_people(matches: int) -> None:
    with pytest.raises(ValueError, match='0 to 10'):
        agreement(matches)


def sample(matches: int, kind: str = 'number') -> dict:
    """Someone answered 2; so many of ten did, the others have answers of their own."""
    others = [f'other {i}' for i in range(10 - matches)]
    answers = ['two'] * bool(matches) + others
    weights = [matches / 10] * bool(matches) + [0.1] * len(others)
    return dict(pred_answer='2', gt_answer=answers, gt_answer_weight=weights, answer_type=kind, question_id=matches)


def test_metric_is_the_official_one() -> None:
    metric = METRICS.build(dict(type='vitnas.VQAAccuracy'))
    table = [sample(matches, 'number' if matches % 2 else 'other') for matches in range(10)]
    table.append(dict(pred_answer='2', gt_answer=['2'], gt_answer_weight=[1.0], answer_type='other'))
    metric.process({}, table)
    found = metric.evaluate(len(table))
    values = [official(matches) for matches in range(11)]
    assert found['VQA/acc'] == pytest.approx(100 * sum(values) / 11)
    assert found['VQA/acc_number'] == pytest.approx(100 * sum(values[1::2]) / 5)
    assert found['VQA/acc_other'] == pytest.approx(100 * sum(values[0::2]) / 6)
    metric.process({}, [sample(1)])
    assert metric.evaluate(1)['VQA/acc'] == pytest.approx(30)
    stock = VQAAcc()
    stock.process({}, [sample(1)])
    assert stock.evaluate(1)['VQA/acc'] == pytest.approx(100 / 3)  # why ours is not the stock one


def test_metric_without_answers() -> None:
    metric = METRICS.build(dict(type='vitnas.VQAAccuracy'))
    with pytest.raises(DatasetError, match=r'question 7 has no answers to compare with.*ReportVQA'):
        metric.process({}, [dict(pred_answer='2', question_id=7)])


def test_spelling_counts_where_all_agree() -> None:
    """The official evaluation processes answers only where people differ."""
    assert score('beach', ['the beach'], [1.0]) == 0
    assert score('the beach ', ['the beach'], [1.0]) == 1
    assert score('beach', ['the beach', 'sea'], [0.9, 0.1]) == 1


def test_targets_are_those_of_spellings_together() -> None:
    targets = soft_targets(['two', '2', 'a few'], [0.1, 0.2, 0.7])
    assert targets == pytest.approx({'2': 0.9, 'few': 1.0})


def annotations(*answers: str) -> list[dict]:
    return [dict(multiple_choice_answer=answer) for answer in answers]


def test_frequent_answers() -> None:
    found = frequent_answers(annotations('Yes', 'two', 'no', 'yes', 'the', '2', 'a cat'), 3)
    assert found == ['2', 'yes', 'cat']
    with pytest.raises(DatasetError, match='there are 1 different answers, fewer than the 2'):
        frequent_answers(annotations('yes', 'Yes'), 2)


def test_list_of_answers(tmp_path: Path) -> None:
    path = tmp_path / 'answers.json'
    with pytest.raises(DatasetError, match=r'no list of answers .*vqa_answers.py makes one'):
        read_answers(path, 2)
    path.write_text(json.dumps(['yes', 'no']))
    assert read_answers(path, 2) == ['yes', 'no']
    with pytest.raises(DatasetError, match='should hold 3 different answers, but has 2'):
        read_answers(path, 3)
    for text in ('{', '{"yes": 1}', '[1, 2]'):
        path.write_text(text)
        with pytest.raises(DatasetError, match='should hold a JSON list of answers'):
            read_answers(path, 2)
