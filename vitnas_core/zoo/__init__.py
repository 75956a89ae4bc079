"""The zoo: published architectures and search spaces as JSON, by name."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from ..errors import ArchError, SpaceError, VitnasError
from ..spaces import Arch, SearchSpace

_FOLDER = Path(__file__).parent
_T = TypeVar('_T')


@dataclass(frozen=True)
class ZooEntry:
    """A published architecture and its facts.

    Args:
        name: Name for ``arch=``, e.g. ``'autoformer-tiny'``.
        title: Name in the paper.
        arch: The architecture.
        source: Source of the architecture.
        paper: Numbers of the paper, as printed.
        input_size: Height and width for which ``macs`` holds.
        num_classes: Classes of the linear head that ``params`` and ``macs`` include.
        params: Exact number of parameters.
        macs: Exact number of multiply-accumulates, by the convention of its family.
    """

    name: str
    title: str
    arch: Arch
    source: str
    paper: Mapping[str, str]
    input_size: tuple[int, int]
    num_classes: int
    params: int
    macs: int


def arch_names() -> list[str]:
    """Valid names for ``arch=``."""
    return sorted(path.stem for path in (_FOLDER / 'archs').glob('*.json'))


def space_names() -> list[str]:
    """Valid names for ``space=``."""
    return sorted(path.stem for path in (_FOLDER / 'spaces').glob('*.json'))


@cache
def entry(name: str) -> ZooEntry:
    """The zoo's entry of a published architecture.

    Raises:
        ArchError: The zoo has no such name.
    """
    _check_published(name)
    if name not in arch_names():
        raise ArchError(f'the zoo has no architecture {name!r}; it has {", ".join(arch_names())}')
    data = json.loads((_FOLDER / 'archs' / f'{name}.json').read_text())
    data['arch'] = Arch.from_dict(data['arch'])
    data['input_size'] = tuple(data['input_size'])
    return ZooEntry(name=name, **data)


def load_arch(ref: Arch | Mapping[str, Any] | str | Path) -> Arch:
    """Resolve the ``arch`` of a config: a zoo name, the path of a JSON file, or the data itself.

    Raises:
        ArchError: There is no such name or file, or it is malformed; the message names the file.
    """
    if isinstance(ref, Arch):
        return ref
    if isinstance(ref, Mapping):
        return Arch.from_dict(ref)
    if str(ref) in arch_names():
        return entry(str(ref)).arch
    _check_published(str(ref))
    return _read_file(ref, _parse_arch, ArchError, 'an architecture', arch_names())


def _check_published(name: str) -> None:
    """Refuse a network whose paper prints its results but not its architecture."""
    known = json.loads((_FOLDER / 'unpublished.json').read_text()).get(name)
    if known and not _is_file(name):
        raise ArchError(f'the architecture of {known} is published nowhere; the zoo has {", ".join(arch_names())}')


def load_space(ref: SearchSpace | Mapping[str, Any] | str | Path) -> SearchSpace:
    """Resolve the ``space`` of a config: a zoo name, the path of a JSON file, or the data itself.

    Raises:
        SpaceError: There is no such name or file, or it is malformed; the message names the file.
    """
    if isinstance(ref, SearchSpace):
        return ref
    if isinstance(ref, Mapping):
        return SearchSpace.from_dict(ref)
    if str(ref) in space_names():
        return SearchSpace.from_json((_FOLDER / 'spaces' / f'{ref}.json').read_text())
    return _read_file(ref, SearchSpace.from_json, SpaceError, 'a space', space_names())


def _read_file(
    ref: str | Path, parse: Callable[[str], _T], error: type[VitnasError], what: str, names: list[str]
) -> _T:
    if not isinstance(ref, (str, Path)) or not _is_file(ref):
        raise error(f'{str(ref)!r} is neither a file nor {what} of the zoo; the zoo has {", ".join(names)}')
    try:
        return parse(Path(ref).read_text())
    except (VitnasError, UnicodeDecodeError) as err:
        raise error(f'{err} ({ref})') from None


def _parse_arch(text: str) -> Arch:
    """Parse an architecture file, or an entry of the zoo, which holds an architecture and notes."""
    with contextlib.suppress(json.JSONDecodeError):
        data = json.loads(text)
        if isinstance(data, dict) and 'family' not in data and 'arch' in data:
            return Arch.from_dict(data['arch'])
    return Arch.from_json(text)


def _is_file(ref: str | Path) -> bool:
    try:
        return Path(ref).is_file()
    except OSError:  # the name is too long, e.g. the JSON text itself
        return False
