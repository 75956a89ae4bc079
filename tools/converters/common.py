"""Command line of the converters: two files, errors in one sentence, and a report of the written file."""

from __future__ import annotations

import argparse
import contextlib
import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from vitnas_core.backbones import ElasticBackbone
from vitnas_core.backbones.foreign import digest
from vitnas_core.backbones.pretrained import NOTE, Note
from vitnas_core.errors import VitnasError
from vitnas_core.spaces import Arch
from vitnas_core.utils.fileio import atomic_write


def make_parser(description: str | None) -> argparse.ArgumentParser:
    """Make a command line that takes a source and a target."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('source', type=Path, help='checkpoint to read (.pth or .safetensors)')
    parser.add_argument('target', type=Path, help='checkpoint to write (.pth or .safetensors)')
    return parser


def parse(parser: argparse.ArgumentParser, args: list[str] | None) -> argparse.Namespace:
    """Read the command line, and refuse to overwrite the source."""
    options = parser.parse_args(args)
    if options.source.resolve() == options.target.resolve():
        parser.error(f'the target is the source: {options.source}')
    return options


@contextlib.contextmanager
def refusing(source: Path) -> Iterator[None]:
    """End the program with one sentence that names the file if it cannot be converted."""
    try:
        yield
    except VitnasError as err:
        raise SystemExit(f'{type(err).__name__}: {err} ({source})') from None


def finish(path: Path, state: dict[str, Tensor], cls: type[ElasticBackbone], settings: Mapping[str, Any]) -> None:
    """Write weights in our layout with their backbone's note, and print the backbone of their config.

    Args:
        path: The target. An architecture without a name is written beside it.
        state: The weights.
        cls: The class of the backbone.
        settings: Its arguments; ``arch`` may be an :class:`~vitnas_core.spaces.Arch`.
    """
    arch = settings.get('arch')
    if isinstance(arch, Arch):
        file = path.with_suffix('.arch.json')
        atomic_write(file, arch.to_json())
        settings = {**settings, 'arch': str(file)}
    with torch.device('meta'):
        note = Note.of(cls(**settings)).to_json()
    _write(path, 'state_dict', state, {NOTE: note})
    print(config_line(cls, settings))


def finish_foreign(path: Path, state: dict[str, Tensor], key: str = 'model') -> None:
    """Write weights in a foreign layout; a ``.pth`` file has them under ``key``."""
    _write(path, key, state, {})


def config_line(cls: type[ElasticBackbone], settings: Mapping[str, Any]) -> str:
    """Spell the backbone of a config in one line."""
    arguments = ', '.join(f'{name}={value!r}' for name, value in settings.items())
    return f"backbone: dict(type='vitnas.{cls.__name__}', {arguments})"


def _write(path: Path, key: str, state: dict[str, Tensor], notes: dict[str, str]) -> None:
    """Write a state dict aside, rename it, and print its digest."""
    if path.suffix == '.safetensors':
        atomic_write(path, safetensors.torch.save(state, notes))
    else:
        buffer = io.BytesIO()
        torch.save({key: state, **({'meta': notes} if notes else {})}, buffer)
        atomic_write(path, buffer.getvalue())
    print(f'{len(state)} tensors, digest {digest(state)[:16]}: {path}')
