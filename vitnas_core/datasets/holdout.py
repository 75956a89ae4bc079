"""A hold-out split of a training set, so that a search never sees the test images."""

import copy
import functools
import hashlib
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from mmengine.dataset import BaseDataset, force_full_init

from ..errors import DatasetError
from ..registry import DATASETS
from ..utils import checks

_PARTS = ('train', 'holdout')


@DATASETS.register_module()
class HoldOut:
    """One part of a training set: training images, or held-out images to compare candidates.

    With the same dataset and seed, the parts 'train' and 'holdout' are disjoint and together the whole,
    whatever their pipelines. The split is made by position, so both parts must wrap the same samples in the
    same order: the same annotation file, ``filter_cfg`` and ``indices``.

    In the hold-out part, a sample whose pipeline fails raises an error, as in a test set. In the training
    part, mmengine replaces it by another random sample of that part.

    Args:
        dataset (BaseDataset | dict): A training set, or its config. To combine it with a wrapper such as
            ``RepeatDataset``, put that wrapper around this one.
        part (str): 'train' or 'holdout'.
        per_class (int, optional): The number of hold-out samples of each class. Needs one label per sample.
        fraction (float, optional): The fraction of samples to hold out, rounded to whole samples. With one
            label per sample, each class gives its part, but never its last sample. Other datasets (detection,
            segmentation, several labels per sample) are split without regard to classes. Give exactly one of
            ``per_class`` and ``fraction``.
        seed (int): Seed of the split's own generator, the same for both parts. Defaults to 0.
        test_dataset (BaseDataset | dict, optional): The test set. If given, a sample of this part that
            occurs in it (the same file, or the same pixels for images in memory) is an error.
            Defaults to None.
        lazy_init (bool): Whether to split at first use instead of now. Defaults to False.

    Raises:
        DatasetError: If an argument is out of range, ``dataset`` is not a training set, a class has too few
            samples, a part would be empty, or a sample is also in ``test_dataset``.

    Examples:
        >>> train = dict(type='vitnas.Digits', split='train')
        >>> dict(type='vitnas.HoldOut', dataset=train, part='holdout', per_class=20)
    """

    def __init__(
        self,
        dataset: BaseDataset | dict,
        part: str,
        per_class: int | None = None,
        fraction: float | None = None,
        seed: int = 0,
        test_dataset: BaseDataset | dict | None = None,
        lazy_init: bool = False,
    ) -> None:
        _check_arguments(part, per_class, fraction, seed)
        self.part = part
        self.per_class = per_class
        self.fraction = fraction
        self.seed = seed
        self.test_dataset = test_dataset
        self.dataset: BaseDataset = DATASETS.build(dataset) if isinstance(dataset, dict) else dataset
        _check_training_set(self.dataset)

        self._fully_initialized = False
        if not lazy_init:
            self.full_init()

    def full_init(self) -> None:
        """Load the dataset and keep this part of it."""
        if self._fully_initialized:
            return
        self.dataset.full_init()
        indices = self._choose().tolist()
        if self.test_dataset is not None:
            _check_not_in_test(self.dataset, indices, self.test_dataset)
        # A copy, because the caller's dataset must stay whole. A shallow one is enough for get_subset_(), which
        # only rebinds; get_subset() would share one memo between all its deep copies. The subset holds only this
        # part, so that mmengine cannot replace a failed sample by one of the other part.
        part = copy.copy(self.dataset)
        part.get_subset_(indices)
        part.test_mode = self.part == 'holdout'
        self.dataset = part
        self.test_dataset = None
        self._fully_initialized = True

    def _choose(self) -> np.ndarray:
        """The positions of this part's samples, ascending."""
        name, total = type(self.dataset).__name__, len(self.dataset)
        labels = read_labels(self.dataset)
        if labels is None and self.per_class is not None:
            raise DatasetError(
                f'per_class={self.per_class} of vitnas.HoldOut needs one integer gt_label in every sample, '
                f'which {name} does not have; give fraction instead'
            )
        if labels is None:
            labels = np.zeros(total, dtype=np.int64)  # one class of all samples: a plain split
        chosen = choose_holdout(labels, self.per_class, self.fraction, self.seed, name)
        if not 0 < len(chosen) < total:
            raise DatasetError(
                f'fraction={self.fraction} of vitnas.HoldOut would hold out {len(chosen)} of the {total} samples '
                f'of {name}; both parts need at least one sample'
            )
        held_out = np.zeros(total, dtype=bool)
        held_out[chosen] = True
        return np.flatnonzero(held_out if self.part == 'holdout' else ~held_out)

    @property
    def pipeline(self) -> Any:
        """The transforms of the dataset; hooks that change the recipe set them."""
        return self.dataset.pipeline

    @pipeline.setter
    def pipeline(self, pipeline: Any) -> None:
        self.dataset.pipeline = pipeline

    @property
    def metainfo(self) -> dict:
        """Meta information of the dataset; a copy."""
        return self.dataset.metainfo

    @property
    def CLASSES(self) -> Sequence[str] | None:
        """Names of the classes, for mmpretrain's ``ClassNumCheckHook``."""
        return self.metainfo.get('classes')

    @force_full_init
    def get_data_info(self, idx: int) -> dict:
        """The annotation of a sample of this part."""
        return self.dataset.get_data_info(idx)

    @force_full_init
    def get_cat_ids(self, idx: int) -> list[int]:
        """The classes of a sample of this part, if the dataset has them."""
        return self.dataset.get_cat_ids(idx)

    @force_full_init
    def get_gt_labels(self) -> np.ndarray:
        """The labels of this part, if the dataset is one of mmpretrain's."""
        return self.dataset.get_gt_labels()

    @force_full_init
    def __getitem__(self, idx: int) -> Any:
        return self.dataset[idx]

    @force_full_init
    def __len__(self) -> int:
        return len(self.dataset)

    def __repr__(self) -> str:
        size = f'per_class={self.per_class}' if self.fraction is None else f'fraction={self.fraction}'
        return f'HoldOut(part={self.part!r}, {size}, seed={self.seed}) of {self.dataset!r}'


def read_labels(dataset: BaseDataset) -> np.ndarray | None:
    """Read the label of every sample.

    Args:
        dataset (BaseDataset): Any dataset, fully initialized.

    Returns:
        np.ndarray | None: Shape (N, ), or None unless every sample has exactly one class in ``gt_label``.
    """
    labels = []
    for index in range(len(dataset)):
        label = np.asarray(dataset.get_data_info(index).get('gt_label'))
        if label.ndim or label.dtype.kind not in 'iu':
            return None
        labels.append(int(label))
    return np.array(labels, dtype=np.int64)


def choose_holdout(
    labels: np.ndarray, per_class: int | None, fraction: float | None, seed: int, name: str = 'the dataset'
) -> np.ndarray:
    """Choose the positions of the hold-out samples.

    Args:
        labels (np.ndarray): The class of each sample, of shape (N, ).
        per_class (int, optional): Hold-out samples of each class.
        fraction (float, optional): Fraction of all samples, used if ``per_class`` is None.
        seed (int): Seed of the choice.
        name (str): Name of the dataset in errors. Defaults to 'the dataset'.

    Returns:
        np.ndarray: The positions, class by class.

    Raises:
        DatasetError: If a class has no more than ``per_class`` samples.
    """
    rng = np.random.default_rng(seed)
    classes, sizes = np.unique(labels, return_counts=True)
    if per_class is None:
        quotas = _share_out(float(fraction or 0), sizes, rng)
    else:
        if sizes.size and sizes.min() <= per_class:
            raise DatasetError(
                f'per_class={per_class} of vitnas.HoldOut is too large: class {classes[sizes.argmin()]} of {name} '
                f'has {sizes.min()} samples and keeps one for training, so at most {sizes.min() - 1} can be held out'
            )
        quotas = np.full(len(classes), per_class)
    members = np.split(np.argsort(labels, kind='stable'), np.cumsum(sizes)[:-1])
    chosen = [rng.permutation(group)[:quota] for group, quota in zip(members, quotas, strict=False)]
    return np.concatenate(chosen) if chosen else np.zeros(0, dtype=np.int64)


def _share_out(fraction: float, sizes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Whole quotas of classes that add up to the fraction of all: whole parts, then the largest remainders."""
    exact = fraction * sizes
    quotas = np.minimum(np.floor(exact), sizes - 1).astype(np.int64)
    missing = max(0, round(fraction * int(sizes.sum())) - int(quotas.sum()))
    order = np.lexsort((rng.random(len(sizes)), quotas - exact))  # equal remainders in random order
    order = order[quotas[order] < sizes[order] - 1]  # the last sample of a class stays for training
    quotas[order[:missing]] += 1
    return quotas


def _check_arguments(part: str, per_class: int | None, fraction: float | None, seed: int) -> None:
    if part not in _PARTS:
        raise DatasetError(f'part of vitnas.HoldOut is {part!r}; it should be {" or ".join(map(repr, _PARTS))}')
    if (per_class is None) == (fraction is None):
        raise DatasetError(
            f'vitnas.HoldOut needs exactly one of per_class and fraction, but got per_class={per_class!r} '
            f'and fraction={fraction!r}'
        )
    if per_class is not None:
        checks.whole('per_class', per_class, error=DatasetError)
    if fraction is not None and not (isinstance(fraction, float) and 0 < fraction < 1):
        raise DatasetError(f'fraction of vitnas.HoldOut is {fraction!r}; it should be a float between 0 and 1')
    checks.whole('seed', seed, 0, DatasetError)  # None would split the two parts differently: they would overlap


def _check_training_set(dataset: Any) -> None:
    name = type(dataset).__name__
    if not isinstance(dataset, BaseDataset):
        raise DatasetError(
            f'dataset of vitnas.HoldOut is a {name}; it should be a dataset that derives from '
            f'mmengine.dataset.BaseDataset (put wrappers around HoldOut, not inside it)'
        )
    split = getattr(dataset, 'split', None)
    if dataset.test_mode or (isinstance(split, str) and split and 'train' not in split):
        raise DatasetError(
            f'dataset of vitnas.HoldOut is {name} with test_mode={dataset.test_mode} and split={split!r}; '
            f'only a training set may be split, or the search would see the test images'
        )


def _check_not_in_test(dataset: BaseDataset, indices: Sequence[int], test_dataset: BaseDataset | dict) -> None:
    """Raise if one of the samples is in the test set as well."""
    test = DATASETS.build(test_dataset) if isinstance(test_dataset, dict) else test_dataset
    in_test = {_identity(test, index): index for index in range(len(test))}
    for index in indices:
        identity = _identity(dataset, index)
        if identity in in_test:
            what = f'the file {identity}' if isinstance(identity, str) else 'an image with the same pixels'
            raise DatasetError(
                f'sample {index} of {type(dataset).__name__} occurs in test_dataset of vitnas.HoldOut as sample '
                f'{in_test[identity]} of {type(test).__name__} ({what}); give a training set without it'
            )


def _identity(dataset: BaseDataset, index: int) -> Any:
    """The identity of an image: its resolved path, or its pixels."""
    info = dataset.get_data_info(index)
    path, image = info.get('img_path'), info.get('img')
    if isinstance(path, str | os.PathLike):
        return _resolve(os.fspath(path))
    if isinstance(image, np.ndarray):
        return image.shape, image.dtype.str, hashlib.blake2b(np.ascontiguousarray(image).data).digest()
    raise DatasetError(
        f'sample {index} of {type(dataset).__name__} cannot be compared with test_dataset of vitnas.HoldOut: '
        f'it has neither img_path nor img (an array) among {", ".join(sorted(info))}'
    )


def _resolve(path: str) -> str:
    """``os.path.realpath`` that resolves each folder once: a set of a million files has few folders."""
    if '://' in path:
        return path
    folder, name = os.path.split(path)
    path = os.path.join(_real_folder(os.path.join(os.getcwd(), folder)), name)
    return os.path.realpath(path) if os.path.islink(path) else path


_real_folder = functools.lru_cache(maxsize=None)(os.path.realpath)
