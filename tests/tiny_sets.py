"""Datasets of a few made-up images in the real sets' file formats, one line a set in ``TINY_SETS``.

A new set is covered by a function that writes it under its ``data_root`` and returns what to change in its config.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest


def _imagenet(root: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> dict[str, Any]:
    """Two of the thousand classes: files of different sizes in a folder a class, listed in ``meta/``."""
    for split in ('train', 'val'):
        lines = []
        for label, folder in enumerate(('n01440764', 'n01443537')):
            for number in range(2):
                name = f'{folder}/{folder}_{number}.JPEG'
                path = root / split / name
                path.parent.mkdir(parents=True, exist_ok=True)
                image = rng.integers(0, 256, (60 + 8 * number, 72, 3), dtype=np.uint8)
                path.write_bytes(cv2.imencode('.jpg', image)[1].tobytes())
                lines.append(f'{name} {label}')
        (root / 'meta').mkdir(exist_ok=True)
        (root / 'meta' / f'{split}.txt').write_text('\n'.join(lines))
    return {}


def _cifar100(root: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> dict[str, Any]:
    """Two of the hundred classes: pickled rows of 3 × 32 × 32 bytes. The real files' checksums cannot hold."""
    from mmpretrain.datasets import CIFAR100

    folder = root / 'cifar-100-python'
    folder.mkdir(parents=True, exist_ok=True)
    for name in ('train', 'test'):
        labels = [0, 0, 1, 1]
        data = rng.integers(0, 256, (len(labels), 3 * 32 * 32), dtype=np.uint8)
        (folder / name).write_bytes(pickle.dumps({'data': data, 'fine_labels': labels}))
    monkeypatch.setattr(CIFAR100, 'train_list', [['train', None]])
    monkeypatch.setattr(CIFAR100, 'test_list', [['test', None]])
    return dict(download=False)


def _fashion_mnist(root: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> dict[str, Any]:
    """Two images of each of the ten classes in idx files."""
    root.mkdir(parents=True, exist_ok=True)
    labels = np.repeat(np.arange(10, dtype=np.uint8), 2)
    for name in ('train', 't10k'):
        images = rng.integers(0, 256, (len(labels), 28, 28), dtype=np.uint8)
        (root / f'{name}-images-idx3-ubyte').write_bytes(struct.pack('>4i', 2051, *images.shape) + images.tobytes())
        (root / f'{name}-labels-idx1-ubyte').write_bytes(struct.pack('>2i', 2049, len(labels)) + labels.tobytes())
    return dict(download=False)


def _digits(root: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> dict[str, Any]:
    """The embedded set is there; its first images have each class at least twice."""
    return dict(indices=40)


TINY_SETS: dict[str, Callable[[Path, pytest.MonkeyPatch, np.random.Generator], dict[str, Any]]] = {
    'ImageNet': _imagenet,
    'CIFAR100': _cifar100,
    'FashionMNIST': _fashion_mnist,
    'Digits': _digits,
}


def datasets_of(node: Any) -> Iterator[dict[str, Any]]:
    """The datasets of a dataloader's ``dataset``, inside wrappers; wrappers have ``dataset`` or ``datasets``."""
    if isinstance(node, (list, tuple)):
        for one in node:
            yield from datasets_of(one)
    elif isinstance(node, dict):
        inside = [node[name] for name in ('dataset', 'datasets') if name in node]
        if inside:
            yield from datasets_of(inside)
        else:
            yield node


def set_name(dataset: dict[str, Any]) -> str:
    """The key of a dataset's config in ``TINY_SETS``."""
    return dataset['type'].rpartition('.')[2]


def make_tiny(dataset: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Write a dataset where its config says, under the current folder, and change its config to it."""
    name = set_name(dataset)
    if name not in TINY_SETS:
        pytest.fail(f'no test knows the dataset {name}: add it to TINY_SETS of {Path(__file__).name}')
    root = Path(dataset.get('data_root', '.'))
    assert not root.is_absolute(), f'data_root of {name} is {root}; a config of the project says data/…'
    dataset.update(TINY_SETS[name](root, monkeypatch, np.random.default_rng(0)))
