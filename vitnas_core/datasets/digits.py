"""The handwritten digits of scikit-learn: a real classification set without a download."""

from typing import Any

import numpy as np
from mmpretrain.datasets import BaseDataset

from ..errors import DatasetError
from ..registry import DATASETS

_SPLITS = ('train', 'test')


@DATASETS.register_module()
class Digits(BaseDataset):
    """1797 real images of 8 x 8 pixels in 10 classes, for tests and quick starts.

    They are the test part of the UCI set "Optical Recognition of Handwritten Digits" (E. Alpaydin and
    C. Kaynak, 1998), which scikit-learn embeds; no image occurs twice. Every fifth image of each class, in
    the order of the set, is a test image. This gives 1442 training images and 355 test images (34 to 36 per
    class). The split is fixed, without a seed, so that results on it can be compared.

    A sample has ``img``, a ``uint8`` array of shape (8, 8, 3) with the grey value 0..16 scaled to 0..255
    in each channel, and ``gt_label``.

    Args:
        split (str): 'train' or 'test'. Defaults to 'train'.
        test_mode (bool, optional): Whether a sample whose pipeline fails raises an error, instead of being
            replaced by another one. Defaults to None: True for the test images.
        **kwargs: Other arguments of :class:`mmpretrain.datasets.BaseDataset`, such as ``pipeline``.

    Raises:
        DatasetError: If ``split`` is neither 'train' nor 'test'.
    """

    METAINFO = {'classes': tuple('0123456789')}

    def __init__(self, split: str = 'train', test_mode: bool | None = None, **kwargs: Any) -> None:
        if split not in _SPLITS:
            raise DatasetError(
                f'split of the dataset Digits is {split!r}; it should be {" or ".join(map(repr, _SPLITS))}'
            )
        self.split = split
        super().__init__(ann_file='', test_mode=split == 'test' if test_mode is None else test_mode, **kwargs)

    def load_data_list(self) -> list[dict]:
        """Read the images of the split from scikit-learn's package."""
        from sklearn.datasets import load_digits

        digits = load_digits()
        images = np.rint(digits.images * (255 / 16)).astype(np.uint8)
        of_split = [
            index
            for label in range(len(self.METAINFO['classes']))
            for rank, index in enumerate(np.flatnonzero(digits.target == label))
            if (rank % 5 == 4) == (self.split == 'test')
        ]
        return [
            {'img': np.repeat(images[index][:, :, None], 3, axis=2), 'gt_label': int(digits.target[index])}
            for index in sorted(of_split)
        ]

    def extra_repr(self) -> list[str]:
        """The split; there is no file to name."""
        return [f'Split: \t{self.split}']
