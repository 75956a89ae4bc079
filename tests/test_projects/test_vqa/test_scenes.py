"""Questions about scenes of digits: right answers, balanced, in files that the stock dataset reads."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest
from mmpretrain.datasets.coco_vqa import COCOVQA

from projects.vqa.tools import make_scenes_vqa, vqa_answers
from projects.vqa.vqa import VQADataset, normalise
from projects.vqa.vqa.scenes import KINDS, Asked, Thing, guessed, write_questions
from projects.vqa.vqa.tokenizer import WordPiece
from vitnas_core.datasets import write_scenes
from vitnas_core.errors import DatasetError

THINGS = [Thing(4, 60, 20), Thing(7, 20, 30), Thing(7, 40, 60), Thing(9, 90, 40)]
"""Two sevens left of the four, which is left of the nine; the four is above all others."""


def ask(kind: str, things: list[Thing] = THINGS) -> dict[str, str]:
    return dict(KINDS[kind](things))


def test_answers_are_right() -> None:
    assert ask('how_many') == {'How many digits are there?': '4'}
    many = ask('how_many_of')
    assert len(many) == 10 and many['How many 7s are there?'] == '2' and many['How many 3s are there?'] == '0'
    there = ask('is_there')
    assert [question for question, answer in there.items() if answer == 'yes'] == [
        *('Is there a 4?', 'Is there a 7?', 'Is there a 9?')
    ]
    assert there['Is there an 8?'] == 'no'
    # Of the sevens left of the four the upper one is 41 away, the lower one 45: too close to tell.
    assert ask('left_of') == {'What is left of the 9?': '4'}
    assert ask('left_of', THINGS[:2]) == {'What is left of the 4?': '7', 'What is left of the 7?': 'nothing'}
    assert ask('above') == {'Is the 4 above the 9?': 'yes', 'Is the 9 above the 4?': 'no'}
    assert ask('above', [Thing(1, 0, 20), Thing(2, 50, 29)]) == {}
    assert ask('largest') == {'What is the largest digit?': '9', 'What is the smallest digit?': '4'}


@pytest.fixture(scope='module')
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp('scenes') / 'set'
    write_scenes(folder, 120, 40, (64, 80))
    write_questions(folder, 8)
    return folder


def dataset(folder: Path, cls: type = VQADataset, split: str = 'train', **more: object) -> COCOVQA:
    files = dict(
        data_prefix=split,
        question_file=f'v2_OpenEnded_scenes_{split}_questions.json',
        ann_file=f'v2_scenes_{split}_annotations.json',
    )
    return cls(data_root=str(folder / 'vqa'), pipeline=[], **{**files, **more})


def infos(one: COCOVQA) -> list[dict]:
    return [one.get_data_info(i) for i in range(len(one))]


def test_stock_dataset_reads_it(folder: Path) -> None:
    stock, ours = infos(dataset(folder, COCOVQA)), infos(dataset(folder))
    assert stock == ours and len(stock) > 600
    for info in stock:
        assert Path(info['img_path']).is_file() and f'{info["image_id"]:012}' in info['img_path']
        assert sum(info['gt_answer_weight']) == pytest.approx(1)
        assert {normalise(answer) for answer in info['gt_answer']} == {info['multiple_choice_answer']}


def counted(question: str, kind: str, numbers: list[int], found: Counter[int]) -> str:
    if kind == 'is_there':
        return 'yes' if found[numbers[0]] else 'no'
    if kind == 'largest':
        return str(max(found) if 'largest' in question else min(found))
    return str(found[numbers[0]] if numbers else found.total())


def test_answers_fit_the_pictures(folder: Path) -> None:
    """Counted anew in the annotations of the detection set."""
    content = json.loads((folder / 'annotations/instances_val.json').read_text())
    digits = {image['id']: Counter() for image in content['images']}
    for one in content['annotations']:
        digits[one['image_id']][one['category_id'] - 1] += 1
    checked: Counter[str] = Counter()
    for info in infos(dataset(folder, split='val')):
        found, kind = digits[info['image_id']], info['question_type']
        numbers = [int(number) for number in re.findall(r'\d', info['question'])]
        if kind in ('left_of', 'above'):
            assert all(found[number] == 1 for number in numbers), info
        else:
            assert info['multiple_choice_answer'] == counted(info['question'], kind, numbers, found), info
        checked[kind] += 1
    assert checked.keys() == KINDS.keys()


def test_little_can_be_guessed(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    arguments = ['--out', str(tmp_path / 'set'), '--train', '500', '--val', '120', '--size', '64', '80']
    make_scenes_vqa.main(arguments)
    printed = capsys.readouterr().out
    share = float(re.search(r'always the most frequent answer to a question: ([\d.]+) %', printed)[1])
    assert 20 < share < 45
    assert re.search(r'train: 4,\d{3} questions \(above', printed)
    files = {path.name: path.read_bytes() for path in (tmp_path / 'set/vqa').iterdir() if path.is_file()}
    make_scenes_vqa.main(arguments)  # the same seed gives the same files
    assert files == {path.name: path.read_bytes() for path in (tmp_path / 'set/vqa').iterdir() if path.is_file()}
    with pytest.raises(SystemExit, match=r'DatasetError: .* holds other scenes'):
        make_scenes_vqa.main([*arguments, '--seed', '1'])


def test_guessing_by_hand() -> None:
    train = [
        Asked(0, 'k', 'a?', 'yes'),
        Asked(1, 'k', 'a?', 'yes'),
        Asked(2, 'k', 'a?', 'no'),
        Asked(3, 'k', 'b?', '1'),
    ]
    val = [Asked(0, 'k', 'a?', 'yes'), Asked(1, 'k', 'a?', 'no'), Asked(2, 'k', 'b?', '1'), Asked(3, 'k', 'c?', '1')]
    assert guessed(train, val) == 0.5


def test_questions_of_yes_and_no_are_balanced(folder: Path) -> None:
    counts = Counter(info['multiple_choice_answer'] for info in infos(dataset(folder)))
    assert counts['yes'] == counts['no'] > 100


def test_vocabulary_and_answers_cover_it(folder: Path) -> None:
    tokenizer = WordPiece(folder / 'vqa/vocab.txt', 64, 16)
    answers = json.loads((folder / 'vqa/answers.json').read_text())
    assert sorted(answers) == sorted([*map(str, range(10)), 'yes', 'no', 'nothing'])
    for split in ('train', 'val'):
        for info in infos(dataset(folder, split=split)):
            assert '[UNK]' not in tokenizer.tokens(info['question'])
            assert info['multiple_choice_answer'] in answers


def test_images_with_several_questions(folder: Path) -> None:
    single, grouped = dataset(folder), dataset(folder, questions_per_image=3)
    assert len(grouped) < len(single)
    seen = []
    for info in infos(grouped):
        assert 1 <= len(info['question']) == len(info['gt_answer']) == len(info['gt_answer_weight']) <= 3
        assert {number // 1000 for number in info['question_id']} == {info['image_id']}
        seen += list(zip(info['question_id'], info['question'], info['gt_answer']))
    assert sorted(seen) == sorted((i['question_id'], i['question'], i['gt_answer']) for i in infos(single))


def test_bad_input(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r'should answer the questions of .*; is it the file of another split\?'):
        dataset(folder, ann_file='v2_scenes_val_annotations.json')
    with pytest.raises(DatasetError, match=r'of the images of .*train_questions.json are not in .*/val, the first is'):
        dataset(folder, data_prefix='val')
    with pytest.raises(DatasetError, match='none.json is not there'):
        dataset(folder, question_file='none.json')
    broken = tmp_path / 'broken.json'
    broken.write_text('{"questions": [')
    with pytest.raises(DatasetError, match='broken.json should be a JSON object with a list of questions'):
        dataset(folder, question_file=str(broken))
    content = json.loads((folder / 'vqa/v2_OpenEnded_scenes_train_questions.json').read_text())
    for change, match in (
        (dict(image_id='COCO_1'), r"questions\[2\].image_id of .*broken.json should be of type int, got 'COCO_1'"),
        (dict(question_id=None), r'questions\[2\].question_id of .* should be of type int, got None'),
    ):
        broken.write_text(json.dumps({'questions': [*content['questions'][:2], content['questions'][2] | change]}))
        with pytest.raises(DatasetError, match=match):
            dataset(folder, question_file=str(broken))
    with pytest.raises(DatasetError, match='`questions_per_image` should be a whole number of at least 1, but got 0'):
        dataset(folder, questions_per_image=0)
    with pytest.raises(DatasetError, match=r'has no scenes: .*make_scenes.py'):
        write_questions(tmp_path)


def test_list_of_answers_from_files(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    file = folder / 'vqa/v2_scenes_train_annotations.json'
    vqa_answers.main([str(file), '--num', '13', '--out', str(tmp_path / 'a.json')])
    assert json.loads((tmp_path / 'a.json').read_text()) == json.loads((folder / 'vqa/answers.json').read_text())
    assert capsys.readouterr().out.startswith('13 answers to ')
    with pytest.raises(SystemExit, match='there are 13 different answers'):
        vqa_answers.main([str(file), '--out', str(tmp_path / 'b.json')])
    with pytest.raises(SystemExit, match='should be a file of annotations as VQA v2 has them'):
        vqa_answers.main([str(folder / 'vqa/answers.json'), '--out', str(tmp_path / 'b.json')])
    assert not (tmp_path / 'b.json').exists()
