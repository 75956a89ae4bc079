"""The scenes of digits: the same from the same seed, and read alike by mmdet, mmseg and pycocotools."""

import json
from contextlib import contextmanager
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.registry import METRICS, DefaultScope
from mmengine.structures import InstanceData, PixelData
from pycocotools.coco import COCO

from tools.dataset_converters import make_scenes as tool
from vitnas_core.datasets import Digits, make_scene, scenes, write_scenes
from vitnas_core.errors import DatasetError
from vitnas_core.registry import DATASETS

CONFIGS = Path(__file__).resolve().parents[2] / 'configs/_base_/datasets'
COUNTS = {'train': 20, 'val': 4}


@pytest.fixture(scope='module')
def root(tmp_path_factory):
    """A folder in which data/scenes lies, as in the repository."""
    root = tmp_path_factory.mktemp('scenes')
    assert write_scenes(root / 'data/scenes', *COUNTS.values())
    return root


@pytest.fixture(scope='module')
def digits():
    images, labels = scenes._read_originals('train')
    return images[:100], labels[:100]


@contextmanager
def stock(task, root, monkeypatch):
    """The config of the task in the scope of its toolbox, where data/scenes is."""
    monkeypatch.chdir(root)
    with DefaultScope.overwrite_default_scope({'detection': 'mmdet', 'segmentation': 'mmseg'}[task]):
        yield Config.fromfile(CONFIGS / f'scenes_{task}.py')


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob('*')) if path.is_file()}


def read(folder, split):
    """Image, label map and COCO annotations with masks of each scene, read without a toolbox."""
    coco = COCO(str(folder / f'annotations/instances_{split}.json'))
    for number, info in sorted(coco.imgs.items()):
        paths = (folder / split / info['file_name'], folder / 'labels' / split / info['file_name'])
        image, labels = (cv2.imread(str(path), cv2.IMREAD_UNCHANGED) for path in paths)
        yield image, labels, [(note, coco.annToMask(note) > 0) for note in coco.loadAnns(coco.getAnnIds(number))]


def same_files(one, other, but=()):
    one, other = contents(one), contents(other)
    return {name for name in one.keys() & other.keys() if one[name] == other[name]} == one.keys() - set(but)


def test_same_seed_same_files_however_many(root, tmp_path):
    write_scenes(tmp_path / 'few', 3, 2)
    write_scenes(tmp_path / 'again', 3, 2)
    assert contents(tmp_path / 'few') == contents(tmp_path / 'again')
    notes = {'scenes.json', 'annotations/instances_train.json', 'annotations/instances_val.json'}
    assert same_files(tmp_path / 'few', root / 'data/scenes', but=notes)
    for split in COUNTS:
        few, many = ([note for *_, note in read(path, split)] for path in (tmp_path / 'few', root / 'data/scenes'))
        assert [[note for note, _ in scene] for scene in few] == [
            [note for note, _ in scene] for scene in many[: len(few)]
        ]


def test_other_seeds_and_splits_differ(tmp_path):
    for seed in (0, 1):
        write_scenes(tmp_path / str(seed), 2, 2, seed=seed)
    pictures = [data for seed in '01' for name, data in contents(tmp_path / seed).items() if name.endswith('.png')]
    assert len(set(pictures)) == len(pictures) == 16


def test_train_and_val_are_made_of_different_originals(tmp_path, monkeypatch):
    used = {}

    def spy(rng, digits, labels, size):
        used.setdefault(len(digits), set()).update(map(bytes, digits))
        return make_scene(rng, digits, labels, size)

    monkeypatch.setattr(scenes, 'make_scene', spy)
    write_scenes(tmp_path / 'scenes', 1, 1)
    assert sorted(used) == [355, 1442] and not used[355] & used[1442]
    test = Digits(split='test')
    assert used[355] == {test.get_data_info(index)['img'][:, :, 0].tobytes() for index in range(355)}


@pytest.mark.parametrize('split', COUNTS)
def test_files_agree(root, split):
    counts = []
    for image, label_map, notes in read(root / 'data/scenes', split):
        assert image.shape == (96, 128, 3) and label_map.shape == (96, 128)
        assert image.dtype == label_map.dtype == np.uint8
        expected = np.where(label_map > 1, 1, label_map)
        for note, mask in notes:
            rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
            assert note['bbox'] == [columns[0], rows[0], np.ptp(columns) + 1, np.ptp(rows) + 1]
            assert note['area'] == mask.sum() and note['iscrowd'] == 0
            assert (expected[mask] == 1).all()  # no pixel belongs to two digits
            expected[mask] = 1 + note['category_id']
        np.testing.assert_array_equal(expected, label_map)
        near = cv2.dilate((label_map > 1).astype(np.uint8), np.ones((7, 7)))
        assert near[label_map == 0].mean() > 0.98  # only edges of strokes are unlabelled
        counts.append(len(notes))
    assert len(counts) == COUNTS[split] and 2 <= min(counts) < max(counts) <= 6


def test_masks_are_polygons_unless_they_have_holes(root):
    kinds = {list: 0, dict: 0}
    for _, _, notes in read(root / 'data/scenes', 'train'):
        for note, mask in notes:
            _, tree = cv2.findContours(mask.astype(np.uint8), cv2.RETR_CCOMP, cv2.CHAIN_APPROX_NONE)
            assert isinstance(note['segmentation'], dict) == (tree[0][:, 3] >= 0).any()
            kinds[type(note['segmentation'])] += 1
    assert min(kinds.values()) > 5
    assert isinstance(json.loads(json.dumps(note))['area'], int)


@pytest.mark.parametrize('size', [(96, 128), (128, 48), (200, 200)])
def test_digits_overlap_but_stay_half_visible_and_inside(digits, size, monkeypatch):
    drawn = []
    place = scenes.place

    def spy(rng, ink, size):
        drawn.append(place(rng, ink, size))
        assert (drawn[-1] > 0).sum() == (ink > 0).sum()
        return drawn[-1]

    monkeypatch.setattr(scenes, 'place', spy)
    hidden = 0
    for seed in range(8):
        drawn.clear()
        scene = make_scene(np.random.default_rng(seed), *digits, size)
        assert scene.image.shape == (*size, 3) and scene.masks.shape == (len(scene.labels), *size)
        assert scene.label_map.shape == size and 2 <= len(scene.labels) <= 6
        for mask in scene.masks:
            (whole,) = (ink >= scenes.STROKE for ink in drawn if (ink[mask] >= scenes.STROKE).all())
            assert 2 * mask.sum() >= whole.sum() and not (mask & ~whole).any()
            hidden += (mask != whole).any()
    assert hidden > 3


def test_strokes_can_be_seen(root):
    for image, label_map, notes in read(root / 'data/scenes', 'train'):
        grey = image.mean(2)
        for _, mask in notes:
            ring = (cv2.dilate(mask.astype(np.uint8), np.ones((9, 9))) > 0) & (label_map == 1)
            assert grey[mask].mean() > grey[ring].mean() + 30
        assert grey[label_map == 1].std() > 2  # a texture


@pytest.mark.parametrize('part', ['train', 'val', 'holdout', 'supernet'])
def test_mmdet_reads_the_same(root, part, monkeypatch):
    with stock('detection', root, monkeypatch) as cfg:
        dataset = DATASETS.build(cfg.supernet_dataset if part == 'supernet' else cfg[f'{part}_dataloader'].dataset)
        expected = list(read(Path('data/scenes'), 'val' if part == 'val' else 'train'))
        assert len(dataset) == {'train': 20, 'val': 4, 'holdout': 4, 'supernet': 16}[part]
        assert dataset.metainfo['classes'] == Digits.METAINFO['classes']
        shapes = set()
        for index in range(len(dataset)):
            sample = dataset[index]
            inputs, sample = sample['inputs'], sample['data_samples']
            image, _, notes = expected[sample.img_id - 1]
            shapes.add(tuple(inputs.shape))
            assert sample.gt_instances.labels.tolist() == [note['category_id'] - 1 for note, _ in notes]
            if part in ('val', 'holdout'):
                assert (inputs.permute(1, 2, 0).numpy() == image).all()
                masks = sample.gt_instances.masks.masks > 0
                assert (masks == np.stack([mask for _, mask in notes])).all()
                boxes = [[x, y, x + w, y + h] for x, y, w, h in (note['bbox'] for note, _ in notes)]
                assert sample.gt_instances.bboxes.tensor.tolist() == boxes
    assert (len(shapes) > 1) == (part in ('train', 'supernet'))


@pytest.mark.parametrize('part', ['train', 'val', 'holdout', 'supernet'])
def test_mmseg_reads_the_same(root, part, monkeypatch):
    with stock('segmentation', root, monkeypatch) as cfg:
        dataset = DATASETS.build(cfg.supernet_dataset if part == 'supernet' else cfg[f'{part}_dataloader'].dataset)
        assert len(dataset) == {'train': 20, 'val': 4, 'holdout': 4, 'supernet': 16}[part]
        assert dataset.metainfo['classes'] == ('ground', *Digits.METAINFO['classes'])
        expected = list(read(Path('data/scenes'), 'val' if part == 'val' else 'train'))
        for index in range(len(dataset)):
            sample = dataset[index]
            inputs, sample = sample['inputs'], sample['data_samples']
            found = sample.gt_sem_seg.data[0].numpy()
            assert found.shape == inputs.shape[1:] and np.isin(found, [*range(11), 255]).all()
            if part in ('val', 'holdout'):
                image, label_map, _ = expected[int(Path(sample.img_path).stem)]
                assert (inputs.permute(1, 2, 0).numpy() == image).all()
                assert (found == np.where(label_map == 0, 255, label_map.astype(int) - 1)).all()


@pytest.mark.parametrize('part', ['val', 'holdout'])
@pytest.mark.parametrize('perfect', [True, False])
def test_coco_metric(root, part, perfect, monkeypatch):
    with stock('detection', root, monkeypatch) as cfg:
        dataset = DATASETS.build(cfg[f'{part}_dataloader'].dataset)
        metric = METRICS.build(cfg[f'{part}_evaluator'])
        metric.dataset_meta = dataset.metainfo
        for _ in range(2):  # a search scores many candidates with one metric
            for index in range(len(dataset)):
                sample = dataset[index]['data_samples']
                truth = sample.gt_instances
                sample.pred_instances = InstanceData(
                    bboxes=truth.bboxes.tensor,
                    scores=torch.ones(len(truth)),
                    labels=truth.labels if perfect else (truth.labels + 1) % 10,
                    masks=torch.from_numpy(truth.masks.masks > 0),
                )
                metric.process({}, [sample.to_dict()])
            scores = metric.evaluate(len(dataset))
            for name in ('coco/bbox_mAP', 'coco/segm_mAP'):
                assert scores[name] == 1 if perfect else scores[name] < 0.5


@pytest.mark.parametrize('part', ['val', 'holdout'])
def test_iou_metric(root, part, monkeypatch):
    with stock('segmentation', root, monkeypatch) as cfg:
        dataset = DATASETS.build(cfg[f'{part}_dataloader'].dataset)
        metric = METRICS.build(cfg[f'{part}_evaluator'])
        metric.dataset_meta = dataset.metainfo
        present = set()
        for index in range(len(dataset)):
            sample = dataset[index]['data_samples']
            truth = sample.gt_sem_seg.data
            present |= set(truth.unique().tolist()) - {255}
            sample.pred_sem_seg = PixelData(data=truth.where(truth != 255, torch.zeros_like(truth)))
            metric.process({}, [sample.to_dict()])
        assert len(present) > 5
        scores = metric.evaluate(len(dataset))
    assert scores['mIoU'] == scores['aAcc'] == 100


def test_nothing_to_do(tmp_path):
    assert write_scenes(tmp_path / 'scenes', 1, 1)
    (tmp_path / 'scenes/train/000000.png').write_bytes(b'mine')
    assert not write_scenes(tmp_path / 'scenes', 1, 1)
    assert (tmp_path / 'scenes/train/000000.png').read_bytes() == b'mine'
    assert write_scenes(tmp_path / 'scenes', 1, 1, overwrite=True)
    assert (tmp_path / 'scenes/train/000000.png').read_bytes() != b'mine'


def test_other_settings_are_refused_or_replaced(tmp_path):
    write_scenes(tmp_path / 'scenes', 2, 1)
    before = contents(tmp_path)
    with pytest.raises(
        DatasetError, match=r'other scenes \(num_train is 2, not 1, seed is 0, not 4\); give another folder, or'
    ):
        write_scenes(tmp_path / 'scenes', 1, 1, seed=4)
    assert contents(tmp_path) == before
    assert write_scenes(tmp_path / 'scenes', 1, 1, (64, 64), overwrite=True)
    assert not (tmp_path / 'scenes/train/000001.png').exists() and [*tmp_path.iterdir()] == [tmp_path / 'scenes']


def test_what_is_no_folder_of_scenes_is_never_replaced(tmp_path):
    (tmp_path / 'photo.png').write_bytes(b'mine')
    for path in (tmp_path, tmp_path / 'photo.png'):
        with pytest.raises(DatasetError, match='has no scenes.json, so it is not a folder of scenes'):
            write_scenes(path, 1, 1, overwrite=True)
    assert (tmp_path / 'photo.png').read_bytes() == b'mine'


@pytest.mark.parametrize('there', ['nothing', 'an empty folder', 'other scenes'])
def test_an_interrupted_write_leaves_what_was_there(tmp_path, there, monkeypatch):
    folder = tmp_path / 'data/scenes'
    if there == 'an empty folder':
        folder.mkdir(parents=True)
    elif there == 'other scenes':
        write_scenes(folder, 1, 1)
    before = contents(tmp_path)

    calls = []

    def interrupt(*args):
        calls.append(args)
        if len(calls) > 5:
            raise KeyboardInterrupt
        return write_png(*args)

    write_png = scenes._write_png
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(scenes, '_write_png', interrupt)
        write_scenes(folder, 2, 2, overwrite=True)
    assert contents(tmp_path) == before and not [*tmp_path.rglob('.*')]
    assert write_scenes(folder, 2, 2, overwrite=True)
    assert len(list(read(folder, 'val'))) == 2


def test_a_link_is_followed(tmp_path):
    (tmp_path / 'disk').mkdir()
    (tmp_path / 'scenes').symlink_to(tmp_path / 'disk')
    write_scenes(tmp_path / 'scenes', 1, 1)
    assert (tmp_path / 'scenes').is_symlink() and (tmp_path / 'disk/scenes.json').exists()


@pytest.mark.parametrize(
    ('wrong', 'message'),
    [
        (dict(num_train=0), '`num_train` should be a whole number of at least 1, but got 0'),
        (dict(num_val=1.0), '`num_val` should be a whole number of at least 1, but got 1.0'),
        (dict(seed=-1), '`seed` should be a whole number of at least 0, but got -1'),
        (dict(size=(96, 20)), r'size of the scenes is \(96, 20\); it should be a height and a width of at least 48'),
        (dict(size=96), 'size of the scenes is 96; it should be a height and a width'),
    ],
)
def test_wrong_settings(tmp_path, wrong, message):
    with pytest.raises(DatasetError, match=message):
        write_scenes(tmp_path / 'scenes', **wrong)
    assert not [*tmp_path.iterdir()]


def test_wrong_digits(rng, digits):
    images, labels = digits
    for wrong in ((images[:3], labels), (images / 255, labels), (images[:0], labels[:0])):
        with pytest.raises(DatasetError, match=r'they should be uint8 of shape \(K, h, w\) with labels of shape'):
            make_scene(rng, *wrong, (96, 128))
    with pytest.raises(DatasetError, match='labels of a scene are 1 to 10; they should be 0 to 9'):
        make_scene(rng, images, labels + 1, (96, 128))
    with pytest.raises(DatasetError, match='blank'):
        make_scene(rng, images * 0, labels, (96, 128))


def test_tool(root, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    tool.main(['--train', '2', '--val', '1'])
    assert capsys.readouterr().out == '2 training and 1 validation scenes: data/scenes\n'
    first = Path('train/000001.png')
    assert (Path('data/scenes') / first).read_bytes() == (root / 'data/scenes' / first).read_bytes()
    tool.main(['--train', '2', '--val', '1'])
    assert 'nothing to do' in capsys.readouterr().out
    with pytest.raises(SystemExit, match='DatasetError: .* holds other scenes .size is'):
        tool.main(['--train', '2', '--val', '1', '--size', '64', '80'])
    tool.main(['--train', '1', '--val', '1', '--size', '64', '80', '--seed', '3', '--overwrite'])
    settings = json.loads(Path('data/scenes/scenes.json').read_text())
    assert settings == dict(version=scenes.VERSION, num_train=1, num_val=1, size=[64, 80], seed=3)
    assert cv2.imread('data/scenes/val/000000.png').shape == (64, 80, 3)
