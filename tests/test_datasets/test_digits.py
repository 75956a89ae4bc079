"""The embedded digits: real images, a fixed balanced split, mm conventions."""

import numpy as np
import pytest
from mmengine.dataset import default_collate
from sklearn.datasets import load_digits

from vitnas_core.datasets import Digits
from vitnas_core.errors import DatasetError
from vitnas_core.registry import DATASETS


def pixels(dataset):
    return [dataset.get_data_info(i)['img'].tobytes() for i in range(len(dataset))]


@pytest.fixture(scope='module')
def parts():
    return {split: Digits(split=split) for split in ('train', 'test')}


def test_parts_are_disjoint_and_together_every_image(parts):
    train, test = set(pixels(parts['train'])), set(pixels(parts['test']))
    assert len(train) == len(parts['train']) == 1442 and len(test) == len(parts['test']) == 355
    assert not train & test


@pytest.mark.parametrize(('split', 'low', 'high'), [('train', 140, 147), ('test', 34, 36)])
def test_classes_are_balanced(parts, split, low, high):
    counts = np.bincount(parts[split].get_gt_labels())
    assert len(counts) == 10 and low <= counts.min() and counts.max() <= high


def test_images_are_those_of_scikit_learn(parts):
    digits = load_digits()
    known = {
        (np.rint(image * 255 / 16).astype(np.uint8).tobytes(), int(label))
        for image, label in zip(digits.images, digits.target, strict=True)
    }
    for dataset in parts.values():
        for index in range(len(dataset)):
            info = dataset.get_data_info(index)
            image = info['img']
            assert image.shape == (8, 8, 3) and image.dtype == np.uint8
            assert (image == image[:, :, :1]).all()
            assert (image[:, :, 0].tobytes(), info['gt_label']) in known
    assert max(map(max, pixels(parts['train']))) == 255


def test_two_instances_are_equal(parts):
    assert pixels(Digits(split='test')) == pixels(parts['test'])


def test_conventions(parts):
    assert parts['train'].metainfo == {'classes': tuple('0123456789')}
    assert len(parts['train'].CLASSES) == 10
    assert not parts['train'].test_mode and parts['test'].test_mode
    assert not Digits(split='test', test_mode=False, lazy_init=True).test_mode
    assert parts['train'].get_cat_ids(3) == [parts['train'].get_data_info(3)['gt_label']]
    assert 'Split' in repr(parts['test']) and '355' in repr(parts['test'])


def test_mmpretrain_pipeline_and_options():
    dataset = DATASETS.build(
        {
            'type': 'vitnas.Digits',
            'indices': 20,
            'pipeline': [
                {'type': 'Resize', 'scale': 32},
                {'type': 'RandomCrop', 'crop_size': 32, 'padding': 4},
                {'type': 'RandomFlip', 'prob': 0.5, 'direction': 'horizontal'},
                {'type': 'PackInputs'},
            ],
        }
    )
    batch = default_collate([dataset[i]['inputs'] for i in range(len(dataset))])
    assert batch.shape == (20, 3, 32, 32)
    assert [int(dataset[i]['data_samples'].gt_label) for i in range(20)] == dataset.get_gt_labels().tolist()


@pytest.mark.parametrize('split', ['val', '', None, 'Train'])
def test_wrong_split(split):
    with pytest.raises(DatasetError, match=f"split of the dataset Digits is {split!r}; it should be 'train' or 'test'"):
        Digits(split=split)
