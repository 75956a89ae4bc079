"""Atomic file writes: a kill, a full disk or a power cut leaves the old or the new content, never a part."""

import contextlib
import fnmatch
import os
import re
import secrets
from pathlib import Path

from mmengine.fileio import LocalBackend, register_backend

__all__ = ['AtomicBackend', 'atomic_write', 'remove_leftovers']

# A temporary file is hidden and ends in .tmp, so that no pattern for checkpoints or JSON files matches it.
_ASIDE = re.compile(r'\.(?P<name>.+)\.[0-9a-f]{8}\.tmp')


def atomic_write(path: str | os.PathLike, data: bytes | str, encoding: str = 'utf-8') -> None:
    """Write a temporary file in the same folder, flush it to the disk and rename it into place.

    A reader, or a process started after a kill, sees the whole old file or the whole new one. Missing
    folders are made. For a symbolic link, the file that it points to is replaced, not the link.

    Args:
        path (str | os.PathLike): The file to write.
        data (bytes | str): Its whole content.
        encoding (str): The encoding of a ``str``. Defaults to 'utf-8'.

    Raises:
        OSError: If the file cannot be written. The old file is untouched and no temporary file is left.
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
    """Remove the temporary files that :func:`atomic_write` left when it was killed.

    This cannot tell a running writer's file from a dead one's. Call it only if no other process writes
    files of that pattern, and before your first write.

    Args:
        folder (str | os.PathLike): Where to look, not recursively.
        pattern (str): Pattern of the target files' names, such as ``'*.pth'``. Defaults to '*'.

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
