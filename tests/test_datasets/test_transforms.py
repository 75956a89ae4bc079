"""``vitnas.DrawDigit``: digits as in the scenes, random or the same for the same seed and sample."""

import numpy as np
import pytest

from vitnas_core.datasets import Digits, DrawDigit
from vitnas_core.errors import DatasetError
from vitnas_core.registry import DATASETS


def images(number: int = 20, part: str | None = None, **settings) -> np.ndarray:
    dataset = dict(type='vitnas.Digits', pipeline=[dict(type='vitnas.DrawDigit', **settings)])
    if part is not None:
        dataset = dict(type='vitnas.HoldOut', part=part, per_class=30, dataset=dataset)
    built = DATASETS.build(dataset)
    return np.stack([built[i]['img'] for i in range(number)])


def test_a_digit_is_drawn_anew_each_time() -> None:
    dataset = Digits(pipeline=[dict(type='vitnas.DrawDigit')])
    first, again = dataset[0], dataset[0]
    assert first['img'].shape == (56, 56, 3) and first['img'].dtype == np.uint8
    assert not np.array_equal(first['img'], again['img'])
    assert first['gt_label'] == again['gt_label'] == dataset.get_data_info(0)['gt_label']
    assert dataset.get_data_info(0)['img'].shape == (8, 8, 3)  # the original is not touched


def test_numpy_s_seed_decides_what_is_drawn() -> None:
    drawn = []
    for seed in (0, 0, 1):
        np.random.seed(seed)
        drawn.append(images())
    np.testing.assert_array_equal(drawn[0], drawn[1])
    assert not np.array_equal(drawn[0], drawn[2])


def test_with_a_seed_a_sample_looks_the_same_each_time() -> None:
    np.testing.assert_array_equal(images(seed=0), images(seed=0))
    np.testing.assert_array_equal(images(3, seed=0), images(seed=0)[:3])
    np.testing.assert_array_equal(images(part='holdout', seed=0), images(part='holdout', seed=0))
    for one, other in zip(images(seed=0), images(seed=1)):
        assert not np.array_equal(one, other)
    assert len({image.tobytes() for image in images(seed=0)}) == 20


@pytest.mark.parametrize('size', [32, 56, 97])
def test_strokes_are_lighter_than_what_is_behind_them(size: int) -> None:
    drawn = images(50, size=size, seed=0)
    assert drawn.shape == (50, size, size, 3)
    grey = drawn.mean(3).reshape(50, -1)
    assert (np.percentile(grey, 99.5, axis=1) > grey.mean(1) + 40).all()  # a digit is there
    brightest = np.stack(np.unravel_index(grey.argmax(1), (size, size)))
    assert (np.ptp(brightest, axis=1) > size / 2).all()  # at other places


def test_refusals() -> None:
    for settings, words in (
        (dict(size=8), '`size` should be a whole number of at least 32, but got 8'),
        (dict(size=56.0), '`size` should be a whole number of at least 32, but got 56.0'),
        (dict(seed=-1), '`seed` should be a whole number of at least 0, but got -1'),
    ):
        with pytest.raises(DatasetError, match=words):
            DrawDigit(**settings)
    with pytest.raises(DatasetError, match=r'\(8, 8, 3\) and uint8, but got \(28, 28, 3\)'):
        DrawDigit()(dict(img=np.zeros((28, 28, 3), np.uint8)))
