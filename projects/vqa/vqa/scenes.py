"""Questions about scenes of digits in VQA v2's format, balanced against guessing."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

import numpy as np

from vitnas_core.datasets.scenes import ORIGINALS
from vitnas_core.errors import DatasetError
from vitnas_core.utils import checks
from vitnas_core.utils.fileio import atomic_write

from .answers import PEOPLE, frequent_answers
from .tokenizer import SPECIAL

NUM_ANSWERS = 13
"""Valid answers: the ten digits, yes, no and nothing."""
NUMBERS = ('zero', 'one', 'two', 'three', 'four', 'five', 'six', 'seven', 'eight', 'nine')
APART = 10
"""Least distance, in pixels, for a question to call a digit left of, above, or nearer than another."""
FILES = {'questions': 'v2_OpenEnded_scenes_{}_questions.json', 'annotations': 'v2_scenes_{}_annotations.json'}
"""File names as in VQA v2; ``{}`` is the split."""


@dataclass(frozen=True)
class Thing:
    """A digit of a scene and the centre of its visible part."""

    digit: int
    x: float
    y: float


@dataclass(frozen=True)
class Asked:
    """A question about a scene and its answer."""

    scene: int
    kind: str
    text: str
    answer: str


def how_many(things: Sequence[Thing]) -> Iterator[tuple[str, str]]:
    """Ask how many digits there are."""
    yield 'How many digits are there?', str(len(things))


def how_many_of(things: Sequence[Thing]) -> Iterator[tuple[str, str]]:
    """Ask for the number of each digit."""
    for digit in range(10):
        yield f'How many {digit}s are there?', str(sum(thing.digit == digit for thing in things))


def is_there(things: Sequence[Thing]) -> Iterator[tuple[str, str]]:
    """Ask whether each digit is there."""
    for digit in range(10):
        article = 'an' if digit == 8 else 'a'
        yield f'Is there {article} {digit}?', yes(any(thing.digit == digit for thing in things))


def left_of(things: Sequence[Thing]) -> Iterator[tuple[str, str]]:
    """Ask for the nearest digit to the left of each single digit, unless two are about as near."""
    for thing in single(things):
        beside = [other for other in things if thing.x - other.x >= APART]
        near = sorted((np.hypot(thing.x - other.x, thing.y - other.y), other.digit) for other in beside)
        if len(near) < 2 or near[1][0] - near[0][0] >= APART:
            yield f'What is left of the {thing.digit}?', str(near[0][1]) if near else 'nothing'


def above(things: Sequence[Thing]) -> Iterator[tuple[str, str]]:
    """Ask whether one single digit is above another."""
    for one in single(things):
        for other in single(things):
            if abs(one.y - other.y) >= APART:
                yield f'Is the {one.digit} above the {other.digit}?', yes(one.y < other.y)


def largest(things: Sequence[Thing]) -> Iterator[tuple[str, str]]:
    """Ask for the largest and the smallest digit."""
    yield 'What is the largest digit?', str(max(thing.digit for thing in things))
    yield 'What is the smallest digit?', str(min(thing.digit for thing in things))


KINDS: dict[str, Callable[[Sequence[Thing]], Iterator[tuple[str, str]]]] = {
    function.__name__: function for function in (how_many, how_many_of, is_there, left_of, above, largest)
}
"""Kinds of questions: name → all questions of the kind that a scene answers."""


def yes(value: bool) -> str:
    """Answer a yes/no question."""
    return 'yes' if value else 'no'


def single(things: Sequence[Thing]) -> list[Thing]:
    """Return the digits that occur once."""
    counts = Counter(thing.digit for thing in things)
    return [thing for thing in things if counts[thing.digit] == 1]


def choose(candidates: Sequence[Asked], total: int, rng: np.random.Generator) -> list[Asked]:
    """Choose questions with answers as balanced as the candidates allow.

    All kinds get equally many questions, and so do the wordings of a kind. A wording takes its answers in turn, at
    least once each, as long as two answers are left.

    Args:
        candidates: All possible questions.
        total: Approximate number to choose: fewer if candidates run out, more if there are many wordings.
        rng: Draws among questions with the same wording and answer.

    Returns:
        The chosen questions in the order of their scenes.
    """
    found: dict[str, dict[str, dict[str, list[Asked]]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for i in rng.permutation(len(candidates)):
        one = candidates[i]
        found[one.kind][one.text][one.answer].append(one)
    chosen: list[Asked] = []
    for texts in found.values():
        quota = max(1, total // (len(found) * len(texts)))
        for _, by_answer in sorted(texts.items()):
            left = [asked for _, asked in sorted(by_answer.items())]
            taken = 0
            while taken < quota and sum(bool(asked) for asked in left) > 1:
                for asked in filter(None, left):
                    chosen.append(asked.pop())
                    taken += 1
    return sorted(chosen, key=lambda one: (one.scene, one.kind, one.text))


def guessed(train: Sequence[Asked], val: Sequence[Asked]) -> float:
    """Return the fraction of ``val`` that is right if each question gets its most frequent answer in ``train``."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for one in train:
        counts[one.text][one.answer] += 1
    best = {text: counter.most_common(1)[0][0] for text, counter in counts.items()}
    return mean(best.get(one.text) == one.answer for one in val)


def write_questions(folder: str | os.PathLike, per_scene: int = 10, seed: int = 0) -> dict[str, list[Asked]]:
    """Write questions about the scenes of :func:`write_scenes` in VQA v2's own format.

    The files are beside the scenes, and the same for the same seed::

        vqa/train/scene_000000000001.png … vqa/val/…                      the scenes, named as COCO's images
        vqa/v2_OpenEnded_scenes_train_questions.json …                   questions
        vqa/v2_scenes_train_annotations.json …                           ten answers each
        vqa/vocab.txt vqa/answers.json                                   words of the questions, answers to choose from

    Args:
        folder: The folder of the scenes.
        per_scene: Average number of questions per scene. Defaults to 10.
        seed: Seed of the questions. Defaults to 0.

    Returns:
        The questions of each split.

    Raises:
        DatasetError: The folder has no scenes, or too few of them.
    """
    checks.whole('per_scene', per_scene, error=DatasetError)
    source, target = Path(folder), Path(folder) / 'vqa'
    asked: dict[str, list[Asked]] = {}
    annotations: dict[str, list[dict]] = {}
    for i, split in enumerate(ORIGINALS):
        content = _read_scenes(source, split)
        candidates = [
            Asked(scene, kind, *found)
            for scene, things in _things(content).items()
            for kind, ask in KINDS.items()
            for found in ask(things)
        ]
        rng = np.random.default_rng([seed, i])
        asked[split] = choose(candidates, per_scene * len(content['images']), rng)
        _link_images(content['images'], source / split, target / split)
        annotations[split] = _write_split(target, split, asked[split])
    words = {word for part in asked.values() for one in part for word in one.text.lower().replace('?', ' ?').split()}
    words = {word for word in words if not word.endswith('s') or not word[0].isdigit()} | {'##s', *map(str, range(10))}
    atomic_write(target / 'vocab.txt', '\n'.join([*SPECIAL, *sorted(words)]) + '\n')
    answers = frequent_answers(annotations['train'], NUM_ANSWERS)
    atomic_write(target / 'answers.json', json.dumps(answers) + '\n')
    return asked


def _read_scenes(folder: Path, split: str) -> dict:
    path = folder / 'annotations' / f'instances_{split}.json'
    if not path.is_file():
        raise DatasetError(f'{folder} has no scenes: {path} is not there; tools/dataset_converters/make_scenes.py')
    return json.loads(path.read_text())


def _things(content: Mapping) -> dict[int, list[Thing]]:
    """Read the digits of each scene."""
    things: dict[int, list[Thing]] = {image['id']: [] for image in content['images']}
    for one in content['annotations']:
        x, y, width, height = one['bbox']
        things[one['image_id']].append(Thing(one['category_id'] - 1, x + width / 2, y + height / 2))
    return things


def _link_images(images: Sequence[Mapping], source: Path, target: Path) -> None:
    """Link the scenes (or copy them, if the disk cannot) under names that end in the twelve digits of their id."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for image in images:
        named = target / f'scene_{image["id"]:012}.png'
        try:
            os.link(source / image['file_name'], named)
        except OSError:
            shutil.copyfile(source / image['file_name'], named)


def _write_split(folder: Path, split: str, asked: Sequence[Asked]) -> list[dict]:
    """Write the questions and answers of a split; return the annotations."""
    questions: list[dict] = []
    annotations: list[dict] = []
    seen: Counter[int] = Counter()
    for one in asked:
        seen[one.scene] += 1
        ids = {'image_id': one.scene, 'question_id': 1000 * one.scene + seen[one.scene]}
        questions.append({**ids, 'question': one.text})
        annotations.append({**ids, **_annotate(one)})
    info = {'description': 'vitnas: questions about scenes of digits', 'version': '1'}
    for key, entries in (('questions', questions), ('annotations', annotations)):
        content = {'info': info, 'data_subtype': split, key: entries}
        atomic_write(folder / FILES[key].format(split), json.dumps(content))
    return annotations


def _annotate(one: Asked) -> dict:
    """Annotate with the answers of ten people who agree; some spell numbers out."""
    other = NUMBERS[int(one.answer)] if one.answer.isdigit() else one.answer
    spelt = [one.answer if i < PEOPLE - 2 else other for i in range(PEOPLE)]
    return {
        'question_type': one.kind,
        'answer_type': 'yes/no' if one.answer in ('yes', 'no') else 'other' if one.answer == 'nothing' else 'number',
        'multiple_choice_answer': one.answer,
        'answers': [{'answer': a, 'answer_confidence': 'yes', 'answer_id': i + 1} for i, a in enumerate(spelt)],
    }
