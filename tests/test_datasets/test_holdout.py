"""The hold-out split: exact, complementary, with its own seed, and never of test images."""

import json
import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mmengine.dataset import BaseDataset, ClassBalancedDataset, ConcatDataset, RepeatDataset
from mmengine.runner import Runner

from vitnas_core.datasets import Digits, HoldOut
from vitnas_core.datasets.holdout import choose_holdout
from vitnas_core.errors import DatasetError
from vitnas_core.registry import DATASETS

# Serializing, mmengine's default, collects garbage each time, which is most of the time of these tests.
DIGITS = {'type': 'vitnas.Digits', 'split': 'train', 'serialize_data': False}

LABELS = st.lists(st.integers(0, 5), min_size=1, max_size=80).map(np.array)
SEEDS = st.integers(0, 2**32)


@settings(deadline=None)
@given(LABELS, st.floats(0.01, 0.99), SEEDS)
def test_fraction_gives_each_class_its_share(labels, fraction, seed):
    chosen = choose_holdout(labels, None, fraction, seed)
    assert len(set(chosen.tolist())) == len(chosen)
    _, index, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    held = np.bincount(index[chosen], minlength=len(sizes))
    assert (abs(held - fraction * sizes) <= 1 + 1e-9).all()
    assert (held < sizes).all()  # every class can still be learned
    if (sizes >= 2 / (1 - fraction)).all():  # no class is so small that its last sample was asked for
        assert abs(len(chosen) - fraction * len(labels)) <= 0.5 + 1e-9
    assert (chosen == choose_holdout(labels, None, fraction, seed)).all()


@settings(deadline=None)
@given(LABELS, st.integers(1, 4), SEEDS)
def test_per_class_is_exact_or_refused(labels, per_class, seed):
    classes, sizes = np.unique(labels, return_counts=True)
    if sizes.min() <= per_class:
        with pytest.raises(DatasetError, match=f'at most {sizes.min() - 1} can be held out'):
            choose_holdout(labels, per_class, None, seed)
        return
    chosen = choose_holdout(labels, per_class, None, seed)
    assert len(set(chosen.tolist())) == len(chosen)
    assert sorted(labels[chosen]) == sorted(np.repeat(classes, per_class))


def test_choice_depends_on_the_seed_and_is_even():
    """Over many seeds every sample is held out about equally often."""
    labels = np.repeat(np.arange(5), 10)
    counts = np.zeros(50)
    for seed in range(2000):
        counts[choose_holdout(labels, None, 0.3, seed)] += 1
    assert abs(counts / 2000 - 0.3).max() < 0.05
    uneven = np.zeros(5)  # 0.6 samples each: three classes, at random, give one
    for seed in range(2000):
        uneven[labels[choose_holdout(labels, None, 0.06, seed)]] += 1
    assert abs(uneven / 2000 - 0.6).max() < 0.05


def pixels(dataset):
    return [dataset.get_data_info(i)['img'].tobytes() for i in range(len(dataset))]


@pytest.mark.parametrize('size', [{'per_class': 20}, {'fraction': 0.1}])
def test_parts_are_complementary_whatever_the_pipeline(size):
    resize = [{'type': 'mmpretrain.Resize', 'scale': 16}, {'type': 'mmpretrain.PackInputs'}]
    holdout = HoldOut(DIGITS, 'holdout', **size)
    train = HoldOut({**DIGITS, 'pipeline': resize, 'serialize_data': True}, 'train', **size)
    whole, trained, held = pixels(Digits(serialize_data=False)), pixels(train), pixels(holdout)
    assert sorted(trained + held) == sorted(whole) and not set(trained) & set(held)
    assert sorted(trained, key=whole.index) == trained  # in the order of the dataset
    counts = np.bincount(holdout.get_gt_labels())
    assert set(counts) == {20} if 'per_class' in size else len(holdout) == 144 and set(counts) <= {14, 15}
    assert train[0]['inputs'].shape == (3, 16, 16)


def test_seed_chooses_and_global_generators_are_left_alone():
    states = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()
    first, again, other = (HoldOut(DIGITS, 'holdout', per_class=5, seed=seed) for seed in (0, 0, 1))
    assert pixels(first) == pixels(again) != pixels(other)
    assert (random.getstate(), np.random.get_state()[1].tolist()) == states[:2]
    assert torch.equal(torch.get_rng_state(), states[2])


def test_wrapper_conventions():
    lazy = DATASETS.build(
        {'type': 'vitnas.HoldOut', 'dataset': {**DIGITS, 'lazy_init': True}, 'part': 'train', 'per_class': 9}
        | {'lazy_init': True}
    )
    assert not lazy._fully_initialized and not lazy.dataset._fully_initialized
    assert lazy.metainfo == {'classes': lazy.CLASSES} and len(lazy.CLASSES) == 10
    assert len(lazy) == 1442 - 90  # the first use splits
    lazy.full_init()
    assert len(lazy) == 1442 - 90
    assert lazy.get_cat_ids(7) == [lazy.get_data_info(7)['gt_label']]
    assert lazy.get_data_info(7)['sample_idx'] == 7
    assert "part='train'" in repr(lazy) and 'per_class=9' in repr(lazy)


def test_other_wrappers_go_around_it():
    part = {'type': 'vitnas.HoldOut', 'dataset': DIGITS, 'part': 'holdout', 'per_class': 3}
    assert len(RepeatDataset(part, 2)) == 60
    assert len(ConcatDataset([part, {**part, 'part': 'train'}])) == 1442
    assert len(ClassBalancedDataset(part, 0.5)) > 30


def test_given_instance_stays_whole():
    digits = Digits()
    parts = [HoldOut(digits, part, fraction=0.25) for part in ('train', 'holdout')]
    assert len(digits) == sum(map(len, parts)) == 1442 and not digits.test_mode


def test_failed_samples_are_replaced_from_the_same_part():
    """mmengine takes another sample where a pipeline returns None; it must not come from the other part."""

    def flaky(info, calls=[]):  # noqa: B006
        calls.append(info)
        return None if len(calls) % 3 else info['img'].tobytes()

    train = HoldOut({**DIGITS, 'pipeline': [flaky]}, 'train', fraction=0.5)
    own = set(pixels(train))
    assert all(train[i] in own for i in range(100))
    holdout = HoldOut({**DIGITS, 'pipeline': [lambda info: None]}, 'holdout', fraction=0.5)
    with pytest.raises(Exception, match='Test time'):
        holdout[0]


@pytest.fixture
def detection(tmp_path):
    """A set without one label a sample, on disk, in mmengine's own annotation format."""

    def make(folder, count, **info):
        samples = [{'img_path': f'{i}.jpg', 'instances': [{'bbox_label': i % 2}], **info} for i in range(count)]
        annotations = {'metainfo': {'classes': ['a', 'b']}, 'data_list': samples}
        (tmp_path / 'annotations.json').write_text(json.dumps(annotations))
        return BaseDataset('annotations.json', data_root=str(tmp_path), data_prefix={'img_path': folder})

    return make


@pytest.mark.parametrize('labels', [{}, {'gt_label': [0, 1]}])
def test_any_dataset_by_fraction(detection, labels):
    dataset = detection('images', 30, **labels)
    train, holdout = (HoldOut(dataset, part, fraction=0.2, seed=3) for part in ('train', 'holdout'))
    paths = [[d.get_data_info(i)['img_path'] for i in range(len(d))] for d in (train, holdout)]
    assert [len(p) for p in paths] == [24, 6] and len({*paths[0], *paths[1]}) == 30
    assert holdout.metainfo == {'classes': ['a', 'b']}


def test_sample_of_the_test_set_is_refused(detection, tmp_path):
    """The same file by another name: through a linked folder, as a link itself, or by a longer path."""
    (tmp_path / 'images').mkdir()
    (tmp_path / 'links').mkdir()
    (tmp_path / 'folder').symlink_to(tmp_path / 'images')
    for i in range(10):
        (tmp_path / 'images' / f'{i}.jpg').touch()
        (tmp_path / 'links' / f'{i}.jpg').symlink_to(tmp_path / 'images' / f'{i}.jpg')
    train = detection('images', 10)
    for folder in ('images', 'folder', 'links', 'links/../images'):
        with pytest.raises(DatasetError, match=r'sample \d of BaseDataset occurs in test_dataset .*/images/\d.jpg'):
            HoldOut(train, 'holdout', fraction=0.2, test_dataset=detection(folder, 10))
    other = detection('others', 10)
    assert len(HoldOut(train, 'holdout', fraction=0.2, test_dataset=other)) == 2


def test_equal_pixels_are_refused_and_named():
    assert len(HoldOut(DIGITS, 'train', per_class=9, test_dataset={**DIGITS, 'split': 'test'})) == 1352
    holdout = HoldOut(DIGITS, 'holdout', per_class=1, seed=5)
    leaked = Digits(split='test', serialize_data=False)
    leaked.data_list[17] = holdout.get_data_info(4)
    position = pixels(Digits(serialize_data=False)).index(pixels(holdout)[4])
    message = f'sample {position} of Digits occurs in test_dataset of vitnas.HoldOut as sample 17 of Digits'
    with pytest.raises(DatasetError, match=message):
        HoldOut(DIGITS, 'holdout', per_class=1, seed=5, test_dataset=leaked)
    HoldOut(DIGITS, 'train', per_class=1, seed=5, test_dataset=leaked)  # that sample is not in this part


def test_samples_that_cannot_be_compared_are_refused(detection):
    dataset = detection('images', 4)
    blind = BaseDataset(serialize_data=False, lazy_init=True)
    blind.data_list, blind._fully_initialized = [{'text': 'no image'}], True
    with pytest.raises(DatasetError, match='neither img_path nor img .* among sample_idx, text'):
        HoldOut(dataset, 'train', fraction=0.5, test_dataset=blind)


@pytest.mark.parametrize(
    ('options', 'message'),
    [
        ({'part': 'val', 'fraction': 0.1}, "part of vitnas.HoldOut is 'val'; it should be 'train' or 'holdout'"),
        ({}, 'exactly one of per_class and fraction, but got per_class=None and fraction=None'),
        ({'per_class': 1, 'fraction': 0.1}, 'exactly one of .* per_class=1 and fraction=0.1'),
        ({'per_class': 0}, '`per_class` should be a whole number of at least 1, but got 0'),
        ({'per_class': 2.0}, '`per_class` should be a whole number of at least 1, but got 2.0'),
        ({'per_class': True}, '`per_class` should be a whole number of at least 1, but got True'),
        ({'fraction': 1.0}, 'fraction of vitnas.HoldOut is 1.0; it should be a float between 0 and 1'),
        ({'fraction': 10}, 'fraction of vitnas.HoldOut is 10'),
        ({'fraction': float('nan')}, 'fraction of vitnas.HoldOut is nan'),
        ({'fraction': 0.1, 'seed': None}, '`seed` should be a whole number of at least 0, but got None'),
        ({'fraction': 0.1, 'seed': -1}, '`seed` should be a whole number of at least 0, but got -1'),
        ({'per_class': 141}, 'class 8 of Digits has 140 samples and keeps one .* at most 139'),
        ({'fraction': 1e-6}, 'would hold out 0 of the 1442 samples of Digits; both parts need at least one'),
        ({'fraction': 0.1, 'dataset': {**DIGITS, 'split': 'test'}}, "test_mode=True and split='test'"),
        ({'fraction': 0.1, 'dataset': {**DIGITS, 'test_mode': True}}, 'only a training set may be split'),
        (
            {'fraction': 0.1, 'dataset': {**DIGITS, 'split': 'test', 'test_mode': False}},
            'only a training set may be split',
        ),
        (
            {'fraction': 0.1, 'dataset': {'type': 'RepeatDataset', 'dataset': DIGITS, 'times': 2}},
            'is a RepeatDataset; it should be a dataset that derives from mmengine.dataset.BaseDataset',
        ),
    ],
)
def test_mistakes_are_answered_with_a_sentence(options, message):
    with pytest.raises(DatasetError, match=message):
        HoldOut(**{'dataset': DIGITS, 'part': 'train', **options})


def test_per_class_needs_labels(detection):
    with pytest.raises(DatasetError, match='per_class=2 of vitnas.HoldOut needs one integer gt_label .* BaseDataset'):
        HoldOut(detection('images', 4), 'train', per_class=2)


def test_runner_builds_a_loader_from_it():
    part = {'type': 'vitnas.HoldOut', 'dataset': DIGITS, 'part': 'holdout', 'per_class': 4, 'lazy_init': True}
    part['dataset'] = {**DIGITS, 'pipeline': [{'type': 'mmpretrain.PackInputs'}]}
    sampler = {'type': 'DefaultSampler', 'shuffle': False}
    loader = Runner.build_dataloader({'dataset': part, 'sampler': sampler, 'batch_size': 16, 'num_workers': 2})
    seen = [int(sample.gt_label) for batch in loader for sample in batch['data_samples']]
    assert seen == loader.dataset.get_gt_labels().tolist() and len(seen) == 40
