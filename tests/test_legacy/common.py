"""Read the files of an earlier version; tests/data/legacy/write.py lists them.

The tests here use only public parts: configs, files, the zoo, tools, and the interfaces of backbones and spaces.
"""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import numpy as np
import torch

LEGACY = Path(__file__).parents[1] / 'data' / 'legacy'
VERSIONS = sorted(path for path in LEGACY.iterdir() if path.is_dir() and path.name[0].isdigit())


def folders(part: str) -> dict[str, Path]:
    """The folders of a part in every version, by ``version/name``."""
    return {f'{v.name}/{path.name}': path for v in VERSIONS for path in sorted((v / part).iterdir()) if path.is_dir()}


def read(path: Path) -> Any:
    """What a JSON file holds."""
    return json.loads(path.read_text())


def unpack(packed: Path, folder: Path) -> Path:
    """Decompress an ``.xz`` file into a folder."""
    target = folder / packed.stem
    target.write_bytes(lzma.decompress(packed.read_bytes()))
    return target


def images(version: Path, size: int) -> torch.Tensor:
    """The images that outputs were made of."""
    return torch.from_numpy(np.load(version / 'images.npz')[str(size)].astype(np.float32) / 16)


def place(data: Any, **paths: Path | str) -> Any:
    """A config with paths in the place of words."""
    if isinstance(data, dict):
        return {key: place(value, **paths) for key, value in data.items()}
    if isinstance(data, list):
        return [place(value, **paths) for value in data]
    return str(paths[data]) if isinstance(data, str) and data in paths else data
