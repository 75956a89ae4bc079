"""Scenes of handwritten digits for detection and segmentation: made from the embedded set, without a download."""

from __future__ import annotations

import colorsys
import functools
import json
import os
import secrets
import shutil
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from mmengine.utils import ProgressBar
from pycocotools import mask as coco_mask

from ..errors import DatasetError
from ..utils import checks
from .digits import Digits

__all__ = ['Scene', 'make_scene', 'write_scenes']

VERSION = 1
"""Version of the pixels. Raise it when a seed gives other scenes, so that old folders do not pass for new ones."""
ORIGINALS = {'train': 'train', 'val': 'test'}
"""Split of the scenes → split of :class:`Digits` from which they are made."""
SETTINGS = 'scenes.json'
MIN_SIDE = 48
EDGE, STROKE = 0.12, 0.4
"""Least opacity of the uncertain edge of a stroke, and of the stroke itself."""


@dataclass(frozen=True)
class Scene:
    """One image and its annotations.

    Args:
        image (np.ndarray): RGB of type ``uint8`` and shape (H, W, 3).
        masks (np.ndarray): The visible strokes of each digit, ``bool`` of shape (N, H, W); no two overlap.
        labels (np.ndarray): Digit of each mask, of shape (N, ), from back to front.
        label_map (np.ndarray): ``uint8`` of shape (H, W): 0 for the uncertain edge of strokes, 1 for the ground,
            2 to 11 for the digits 0 to 9.
    """

    image: np.ndarray
    masks: np.ndarray
    labels: np.ndarray
    label_map: np.ndarray


def make_scene(rng: np.random.Generator, digits: np.ndarray, labels: np.ndarray, size: tuple[int, int]) -> Scene:
    """Paste two to six digits on a textured canvas.

    Their sides are 0.25 to 0.55 of the canvas's shorter side, mostly about a third. They may overlap, but each
    lies fully inside the canvas and stays at least half visible.

    Args:
        rng (np.random.Generator): Source of all randomness.
        digits (np.ndarray): Digits to choose from, ``uint8`` of shape (K, h, w), bright on black.
        labels (np.ndarray): Their labels, 0 to 9, of shape (K, ).
        size (tuple[int, int]): Height and width of the canvas.

    Raises:
        DatasetError: If the digits do not fit their labels, one is blank, or ``size`` is too small.
    """
    _check_size(size)
    _check_digits(digits, labels)
    number = int(rng.integers(2, 7))
    hues = rng.random() + np.arange(number) / number  # spread, so that overlapping strokes can be told apart
    image = make_canvas(rng, size)
    label_map = np.ones(size, dtype=np.uint8)
    masks = np.zeros((0, *size), dtype=bool)
    areas: list[int] = []  # of whole strokes
    chosen: list[int] = []
    tries = 0
    while len(chosen) < number and (len(chosen) < 2 or tries < 20 * number):  # a full canvas gets no more digits
        tries += 1
        index = int(rng.integers(len(digits)))
        ink = place(rng, draw_digit(rng, digits[index], min(size)), size)
        behind = masks & (ink < EDGE)
        if ink.max() < STROKE or any(2 * mask.sum() < area for mask, area in zip(behind, areas)):
            continue
        stroke = ink >= STROKE
        masks = np.concatenate([behind, stroke[None]])
        areas.append(int(stroke.sum()))
        label_map[ink >= EDGE] = 0
        label_map[stroke] = 2 + labels[index]
        colour = light_colour(rng, hues[len(chosen)])
        image += ink[:, :, None] * (colour - image)
        chosen.append(index)
    image += rng.normal(0, rng.uniform(1, 5), image.shape)
    return Scene(np.rint(image.clip(0, 255)).astype(np.uint8), masks, labels[chosen], label_map)


def write_scenes(
    folder: str | os.PathLike,
    num_train: int = 600,
    num_val: int = 150,
    size: tuple[int, int] = (96, 128),
    seed: int = 0,
    overwrite: bool = False,
) -> bool:
    """Write scenes into a folder, for mmdet's ``CocoDataset`` and for mmseg's ``BaseSegDataset``.

    Training scenes are made from the training images of :class:`Digits`, validation scenes from its test
    images. Scene i of a split depends on the seed, the split, i and the size, not on the number of scenes.
    The folder appears only when it is complete::

        train/000000.png ...   val/000000.png ...                  images
        annotations/instances_train.json, instances_val.json       boxes and visible masks, as in COCO
        labels/train/000000.png ...   labels/val/000000.png ...    classes of pixels, as in ADE20K
        scenes.json                                                the settings

    Args:
        folder (str | os.PathLike): Where to write.
        num_train (int): The number of training scenes. Defaults to 600.
        num_val (int): The number of validation scenes. Defaults to 150.
        size (tuple[int, int]): Height and width of every scene. Defaults to (96, 128).
        seed (int): Seed of all scenes. Defaults to 0.
        overwrite (bool): Whether to replace scenes that are already in the folder. Defaults to False.

    Returns:
        bool: Whether scenes were written; False if the folder already holds the scenes of these settings.

    Raises:
        DatasetError: If an argument is out of range, or the folder holds something else.
    """
    _check_size(size)
    for name, value, least in (('num_train', num_train, 1), ('num_val', num_val, 1), ('seed', seed, 0)):
        checks.whole(name, value, least, DatasetError)
    counts = {'train': num_train, 'val': num_val}
    settings = {'version': VERSION, 'num_train': num_train, 'num_val': num_val, 'size': list(size), 'seed': seed}
    target = Path(os.path.realpath(folder))
    if _is_there(target, settings, overwrite):
        return False
    aside = target.with_name(f'.{target.name}.{secrets.token_hex(4)}.tmp')
    bar = ProgressBar(sum(counts.values()), bar_width=20, file=sys.stdout) if sys.stdout.isatty() else None
    try:
        for split, count in counts.items():
            for _ in _write_split(aside, split, count, size, seed):
                if bar is not None:
                    bar.update()
        (aside / SETTINGS).write_text(json.dumps(settings, indent=2) + '\n')
        return _move_into_place(aside, target, settings, overwrite)
    finally:
        if bar is not None:
            print()
        shutil.rmtree(aside, ignore_errors=True)


def _write_split(folder: Path, split: str, count: int, size: tuple[int, int], seed: int) -> Iterator[None]:
    """Write the images, label maps and annotations of one split; yields after each scene."""
    digits, labels = _read_originals(split)
    for name in (split, f'labels/{split}', 'annotations'):
        (folder / name).mkdir(parents=True, exist_ok=True)
    images: list[dict] = []
    annotations: list[dict] = []
    for index in range(count):
        rng = np.random.default_rng([seed, list(ORIGINALS).index(split), index])
        scene = make_scene(rng, digits, labels, size)
        name = f'{index:06}.png'
        _write_png(folder / split / name, scene.image[:, :, ::-1])
        _write_png(folder / 'labels' / split / name, scene.label_map)
        images.append({'id': index + 1, 'file_name': name, 'height': size[0], 'width': size[1]})
        for mask, label in zip(scene.masks, scene.labels):
            annotations.append({'id': len(annotations) + 1, 'image_id': index + 1, **_annotate(mask, int(label))})
        yield
    content = {
        'info': {'description': 'vitnas scenes of handwritten digits', 'version': str(VERSION)},
        'licenses': [],
        'images': images,
        'annotations': annotations,
        'categories': [{'id': label + 1, 'name': name} for label, name in enumerate(Digits.METAINFO['classes'])],
    }
    (folder / 'annotations' / f'instances_{split}.json').write_text(json.dumps(content))


@functools.cache
def _read_originals(split: str) -> tuple[np.ndarray, np.ndarray]:
    """The digits that scenes of a split are made from, of shape (K, 8, 8), and their labels."""
    dataset = Digits(split=ORIGINALS[split])
    infos = [dataset.get_data_info(index) for index in range(len(dataset))]
    return np.stack([info['img'][:, :, 0] for info in infos]), np.array([info['gt_label'] for info in infos])


def draw_digit(rng: np.random.Generator, digit: np.ndarray, canvas_side: int) -> np.ndarray:
    """The opacity of a digit: enlarged bicubically, slightly rotated and stretched, cropped to its ink."""
    side = rng.triangular(0.25, 0.33, 0.55) * canvas_side
    stretch = np.exp(rng.uniform(-0.15, 0.15))
    angle = np.deg2rad(rng.uniform(-15, 15))
    height, width = digit.shape
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    matrix = turn @ np.diag([side / width * np.sqrt(stretch), side / height / np.sqrt(stretch)])
    room = int(np.ceil(1.5 * side)) + 2
    shift = (room - 1) / 2 - matrix @ [(width - 1) / 2, (height - 1) / 2]
    ink = cv2.warpAffine(
        digit.astype(np.float32) / 255, np.column_stack([matrix, shift]), (room, room), flags=cv2.INTER_CUBIC
    )
    ink = ((ink - 0.15) / 0.75).clip(0, 1)
    rows, columns = np.flatnonzero(ink.any(1)), np.flatnonzero(ink.any(0))
    return ink[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]


def place(rng: np.random.Generator, ink: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Place ink at a random position on an empty canvas, fully inside it."""
    top, left = (int(rng.integers(room - side + 1)) for room, side in zip(size, ink.shape))
    canvas = np.zeros(size, dtype=np.float32)
    canvas[top : top + ink.shape[0], left : left + ink.shape[1]] = ink
    return canvas


def make_canvas(rng: np.random.Generator, size: tuple[int, int]) -> np.ndarray:
    """A dark texture of two colours: smooth noise of several scales, stripes and a gradient. Shape (H, W, 3)."""
    height, width = size
    y, x = np.mgrid[:height, :width] / min(size)
    field = np.zeros(size)
    for cells in (2, 4, 8, 16):
        grid = rng.standard_normal((cells + 2, cells * width // height + 2))
        field += cv2.resize(grid, (width, height), interpolation=cv2.INTER_CUBIC) / np.sqrt(cells)
    for weight, waves in ((rng.uniform(0, 1.5), 0.25), (rng.uniform(0, 0.8), rng.uniform(3, 12))):
        angle, phase = rng.uniform(0, 2 * np.pi, 2)
        field += weight * np.sin(2 * np.pi * waves * (x * np.cos(angle) + y * np.sin(angle)) + phase)
    field = (field - field.min()) / (np.ptp(field) + 1e-9)
    first, second = (
        255 * np.array(colorsys.hsv_to_rgb(rng.random(), rng.uniform(0.1, 0.8), rng.uniform(low, high)))
        for low, high in ((0.05, 0.25), (0.2, 0.5))
    )
    return first + field[:, :, None] * (second - first)


def light_colour(rng: np.random.Generator, hue: float) -> np.ndarray:
    """A light colour for a stroke, RGB from 0 to 255; hues repeat at whole numbers."""
    return 255 * np.array(colorsys.hsv_to_rgb(hue % 1, rng.uniform(0.05, 0.5), rng.uniform(0.75, 1)))


def _annotate(mask: np.ndarray, label: int) -> dict:
    """The COCO annotation of a visible mask of shape (H, W)."""
    x, y, width, height = cv2.boundingRect(mask.astype(np.uint8))
    return {
        'category_id': label + 1,
        'bbox': [x, y, width, height],
        'area': int(mask.sum()),
        'iscrowd': 0,
        'segmentation': _encode(mask),
    }


def _encode(mask: np.ndarray) -> list[list[float]] | dict:
    """Encode a mask as polygons if they reproduce its pixels, else (e.g. with holes) as a run-length code."""
    # At twice the size, contours run a quarter pixel inside the border and enclose all pixel centres.
    doubled = mask.astype(np.uint8).repeat(2, 0).repeat(2, 1)
    contours, _ = cv2.findContours(doubled, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)
    polygons = [((contour.reshape(-1) + 0.5) / 2).tolist() for contour in contours]
    codes = coco_mask.frPyObjects(polygons, *mask.shape)
    if (coco_mask.decode(coco_mask.merge(codes)) == mask).all():
        return polygons
    code = coco_mask.encode(np.asfortranarray(mask, dtype=np.uint8))
    return {'size': list(mask.shape), 'counts': code['counts'].decode()}


def _write_png(path: Path, image: np.ndarray) -> None:
    path.write_bytes(cv2.imencode('.png', image)[1].tobytes())


def _is_there(folder: Path, settings: dict, overwrite: bool) -> bool:
    """Return whether the folder already holds the scenes of these settings.

    Raises:
        DatasetError: It holds something else that must not be replaced.
    """
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return False
    try:
        found = json.loads((folder / SETTINGS).read_text())
    except (OSError, ValueError):
        found = None
    if not isinstance(found, dict):
        raise DatasetError(f'{folder} exists and has no {SETTINGS}, so it is not a folder of scenes; give another one')
    if overwrite:
        return False
    if found != settings:
        other = [
            f'{name} is {found.get(name)}, not {value}' for name, value in settings.items() if found.get(name) != value
        ]
        raise DatasetError(f'{folder} holds other scenes ({", ".join(other)}); give another folder, or overwrite it')
    return True


def _move_into_place(aside: Path, folder: Path, settings: dict, overwrite: bool) -> bool:
    """Rename the complete folder; return False if another process wrote the same scenes first."""
    if _is_there(folder, settings, overwrite):
        return False
    old = aside.with_suffix('.old')
    with suppress(FileNotFoundError):
        folder.rename(old)
    aside.rename(folder)
    shutil.rmtree(old, ignore_errors=True)
    return True


def _check_size(size: tuple[int, int]) -> None:
    if (
        not isinstance(size, (tuple, list))
        or len(size) != 2
        or any(type(side) is not int or side < MIN_SIDE for side in size)
    ):
        raise DatasetError(
            f'size of the scenes is {size!r}; it should be a height and a width of at least {MIN_SIDE} pixels'
        )


def _check_digits(digits: np.ndarray, labels: np.ndarray) -> None:
    if digits.ndim != 3 or digits.dtype != np.uint8 or len(digits) == 0 or labels.shape != digits.shape[:1]:
        raise DatasetError(
            f'digits of a scene are {digits.dtype} of shape {digits.shape} with labels of shape {labels.shape}; '
            'they should be uint8 of shape (K, h, w) with labels of shape (K, )'
        )
    if labels.min() < 0 or labels.max() > 9:
        raise DatasetError(f'labels of a scene are {labels.min()} to {labels.max()}; they should be 0 to 9')
    if digits.max(axis=(1, 2)).min() < 160:
        raise DatasetError('one of the digits of a scene is blank or too faint; each should reach a grey value of 160')
