"""Writing files so that a kill, a full disk or a power cut leaves the old content or the new, never a part."""

import contextlib
import fnmatch
import os
import re
import secrets
from pathlib import Path

from mmengine.fileio import LocalBackend, register_backend

__all__ = ['AtomicBackend', 'atomic_write', 'remove_leftovers']

# An aside file is hidden and ends in .tmp, so that no pattern for checkpoints or JSON files matches it.
_ASIDE = re.compile(r'\.(?P<name>.+)\.[0-9a-f]{8}\.tmp')


def atomic_write(path: str | os.PathLike, data: bytes | str, encoding: str = 'utf-8') -> None:
    """Write a file aside in its own folder, flush it to the disk and rename it into place.

    A reader, or a process started after a kill, sees the whole old file or the whole new one. Missing
    folders are made. A symbolic link is followed: the file that it points to is replaced, not the link.

    Args:
        path (str | os.PathLike): The file to write.
        data (bytes | str): Its whole content.
        encoding (str): The encoding of a ``str``. Defaults to 'utf-8'.

    Raises:
        OSError: If the file cannot be written; the old file is untouched then and nothing is left aside.
    """
    target = os.path.realpath(path)
    folder, name = os.path.split(target)
    os.makedirs(folder, exist_ok=True)
    aside = os.path.join(folder, f'.{name}.{secrets.token_hex(4)}.tmp')
    try:
        # Mode 'x' gives the file the permissions of an ordinary new one; tempfile's would be private.
        with open(aside, 'xb') as file:
            file.write(data.encode(encoding) if isinstance(data, str) else data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.remove(aside)
        raise
    _sync_folder(folder)


def remove_leftovers(folder: str | os.PathLike, pattern: str = '*') -> list[str]:
    """Remove what :func:`atomic_write` left aside when it was killed.

    An aside file of a living writer cannot be told from a dead one's, so this is for whoever alone writes
    the files of that pattern, before the first write.

    Args:
        folder (str | os.PathLike): Where to look, not recursively.
        pattern (str): Names of the files that were to be written, such as ``'*.pth'``. Defaults to '*'.

    Returns:
        list[str]: The names that were removed, sorted.
    """
    removed = []
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
        match = _ASIDE.fullmatch(name)
        if match and fnmatch.fnmatchcase(match['name'], pattern):
            with contextlib.suppress(FileNotFoundError):
                os.remove(os.path.join(folder, name))
                removed.append(name)
    return removed


@register_backend('vitnas.atomic', force=True)
class AtomicBackend(LocalBackend):
    """mmengine's local storage, whose files of bytes are written atomically.

    Ask for it with ``backend_args=dict(backend='vitnas.atomic')``. It replaces no backend of mmengine.
    """

    def put(self, obj: bytes, filepath: str | Path) -> None:
        """Write bytes by :func:`atomic_write`."""
        atomic_write(filepath, obj)


def _sync_folder(folder: str) -> None:
    """Make the rename itself durable, where folders can be opened and synced (not on Windows)."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
