"""Datasets of a few made-up images in the real sets' file formats, one entry per set in ``TINY_SETS``.

To cover a new set, add a function that writes it under its ``data_root`` and returns the changes to its config.
"""

from __future__ import annotations

import json
import pickle
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from pycocotools import mask as coco_mask

from vitnas_core.datasets import write_scenes


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


def _coco(root: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> dict[str, Any]:
    """Images of different sizes, wide ones to train on, with polygons and one crowd; one has no objects."""
    from mmdet.datasets import CocoDataset

    names = CocoDataset.METAINFO['classes']
    for split, sizes in (('train', [(60, 90), (64, 84), (50, 70)]), ('val', [(60, 80), (80, 56)])):
        images, objects = [], []
        for number, (height, width) in enumerate(sizes, 1):
            name = f'{number:012}.jpg'
            _write_image(root / f'{split}2017' / name, rng, height, width)
            images.append(dict(id=number, file_name=name, height=height, width=width))
            if (split, number) != ('train', 3):
                objects += [dict(one, image_id=number) for one in _objects(height, width)]
        objects = [dict(one, id=number) for number, one in enumerate(objects, 1)]
        categories = [dict(id=number, name=name) for number, name in enumerate(names, 1)]
        path = root / 'annotations' / f'instances_{split}2017.json'
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(dict(images=images, annotations=objects, categories=categories)))
    return {}


def _objects(height: int, width: int) -> list[dict[str, Any]]:
    """A triangle, two rectangles that are one object, and a crowd as a run-length code."""
    h, w = height / 8, width / 8
    triangle = [[w, h, 4 * w, h, w, 5 * h]]
    parts = [[5 * w, 2 * h, 7 * w, 2 * h, 7 * w, 4 * h, 5 * w, 4 * h], [5 * w, 5 * h, 7 * w, 5 * h, 7 * w, 7 * h]]
    crowd = np.zeros((height, width), np.uint8)
    crowd[-height // 4 :, : width // 2] = 1
    code = coco_mask.encode(np.asfortranarray(crowd))
    outside = [0, *np.flatnonzero(np.diff(crowd.flatten('F'), prepend=0)).tolist(), crowd.size]
    counts = np.diff(outside).tolist()
    found: list[dict[str, Any]] = []
    for category, polygons in ((1, triangle), (18, parts)):
        mask = coco_mask.merge(coco_mask.frPyObjects(polygons, height, width))
        box, area = coco_mask.toBbox(mask).tolist(), float(coco_mask.area(mask))
        found.append(dict(category_id=category, segmentation=polygons, bbox=box, area=area, iscrowd=0))
    shape = dict(size=[height, width], counts=counts)
    box, area = coco_mask.toBbox(code).tolist(), float(coco_mask.area(code))
    return [*found, dict(category_id=1, segmentation=shape, bbox=box, area=area, iscrowd=1)]


def _ade20k(root: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> dict[str, Any]:
    """Images of different sizes with labels 0, which is none of the classes, to 150."""
    for split, short, sizes in (
        ('training', 'train', [(60, 90), (90, 64)]),
        ('validation', 'val', [(60, 80), (80, 56)]),
    ):
        for number, (height, width) in enumerate(sizes, 1):
            name = f'ADE_{short}_{number:08}'
            _write_image(root / 'images' / split / f'{name}.jpg', rng, height, width)
            labels = rng.integers(0, 151, (5, 5), dtype=np.uint8)
            _write_labels(root / 'annotations' / split / f'{name}.png', labels, height, width)
    return {}


def _cityscapes(root: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> dict[str, Any]:
    """Wide images of one size, in a folder a city, with labels 0 to 18 and 255, which is none of the classes."""
    for split, city in (('train', 'aachen'), ('val', 'munster')):
        for number in range(2):
            name = f'{city}_{number:06}_000019'
            _write_image(root / 'leftImg8bit' / split / city / f'{name}_leftImg8bit.png', rng, 64, 128)
            labels = rng.choice(np.array([*range(19), 255], np.uint8), (4, 8))
            labels[0, 0] = 255
            _write_labels(root / 'gtFine' / split / city / f'{name}_gtFine_labelTrainIds.png', labels, 64, 128)
    return {}


def _scenes(root: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> dict[str, Any]:
    """As the tool writes them, for detection and segmentation; a fifth can be held out."""
    write_scenes(root, num_train=5, num_val=2)
    return {}


def _vqa(root: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> dict[str, Any]:
    """Two images with two and three questions a split, in VQA v2's files or in those of the scenes."""
    scenes = root.name == 'vqa'
    names = ('v2_OpenEnded_scenes_{}_questions', 'v2_scenes_{}_annotations')
    if not scenes:
        names = ('annotations/v2_OpenEnded_mscoco_{}_questions', 'annotations/v2_mscoco_{}_annotations')
    for split in ('train', 'val') if scenes else ('train2014', 'val2014', 'test2015'):
        entries: tuple[list[dict], list[dict]] = ([], [])
        for image, number in ((1, 2), (2, 3)):
            name = f'scene_{image:012}.png' if scenes else f'COCO_{split}_{image:012}.jpg'
            _write_image(root / split / name, rng, 64, 96)
            for i in range(number):
                ids = dict(image_id=image, question_id=1000 * image + i)
                entries[0].append(dict(ids, question=('Is there a 7?', 'How many digits are there?')[i % 2]))
                answers = [dict(answer=('yes', '2')[i % 2], answer_id=j) for j in range(10)]
                entries[1].append(dict(ids, answers=answers, answer_type=('yes/no', 'number')[i % 2]))
        for name, key, found in zip(names, ('questions', 'annotations'), entries):
            if not (key == 'annotations' and split == 'test2015'):
                path = root / f'{name.format(split)}.json'
                path.parent.mkdir(exist_ok=True)
                path.write_text(json.dumps({key: found}))
    return {}


def _write_image(path: Path, rng: np.random.Generator, height: int, width: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    image = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
    path.write_bytes(cv2.imencode(path.suffix, image)[1].tobytes())


def _write_labels(path: Path, labels: np.ndarray, height: int, width: int) -> None:
    """A label map of squares of 20 × 20 pixels."""
    path.parent.mkdir(parents=True, exist_ok=True)
    squares = labels.repeat(20, 0).repeat(20, 1)[:height, :width]
    path.write_bytes(cv2.imencode('.png', squares)[1].tobytes())


TINY_SETS: dict[str, Callable[[Path, pytest.MonkeyPatch, np.random.Generator], dict[str, Any]]] = {
    'ImageNet': _imagenet,
    'CIFAR100': _cifar100,
    'FashionMNIST': _fashion_mnist,
    'Digits': _digits,
    'CocoDataset': _coco,
    'ADE20KDataset': _ade20k,
    'CityscapesDataset': _cityscapes,
    'Scenes': _scenes,
    'VQADataset': _vqa,
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
    """The key of a dataset's config in ``TINY_SETS``; scenes have no class of their own."""
    if Path(dataset.get('data_root') or '').name == 'scenes':
        return 'Scenes'
    return dataset['type'].rpartition('.')[2]


def make_tiny(dataset: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Write a dataset where its config says, under the current folder, and change its config to it."""
    name = set_name(dataset)
    if name not in TINY_SETS:
        pytest.fail(f'no test knows the dataset {name}: add it to TINY_SETS of {Path(__file__).name}')
    root = Path(dataset.get('data_root', '.'))
    assert not root.is_absolute(), f'data_root of {name} is {root}; a config of the project says data/…'
    dataset.update(TINY_SETS[name](root, monkeypatch, np.random.default_rng(0)))
