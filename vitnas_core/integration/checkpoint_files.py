"""mmengine's checkpoints under ``weights_only=True``, and weight files of other kinds."""

import functools
import importlib
import pickle
import sys
from typing import Any

import numpy as np
import torch

from .on_import import when_imported

_HISTORY_STATISTICS = ('min', 'max', 'current', 'mean')
_NUMBERS = ('bool', 'int8', 'uint8', *(f'{kind}{bits}' for kind in ('int', 'uint', 'float') for bits in (16, 32, 64)))


def allow_checkpoint_globals() -> None:
    """Let ``torch.load(weights_only=True)`` read mmengine's checkpoints.

    ``weights_only=True`` is the default since torch 2.6, and mmengine never passes another value. So ``Runner.resume``
    and ``load_from`` refuse mmengine's own files: their message hub holds ``HistoryBuffer`` objects, numpy arrays and
    numpy scalars. A ``HistoryBuffer`` also pickles its statistics, e.g. as ``getattr(HistoryBuffer, 'mean')``. The real
    ``getattr`` must never be allowed: a file could reach anything with it. A stand-in under its name knows only the
    four statistics.

    Does nothing to files without these names. Other globals are refused as before.
    """
    from mmengine.logging import HistoryBuffer

    allowed: list[Any] = [HistoryBuffer, (_history_buffer_statistic, 'builtins.getattr'), np.ndarray, np.dtype]
    allowed += [type(np.dtype(name)) for name in _NUMBERS]
    reconstruct, scalar = np.zeros(1).__reduce__()[0], np.float64(0).__reduce__()[0]
    for module in ('numpy._core.multiarray', 'numpy.core.multiarray'):  # files of numpy 2 and of numpy 1
        allowed += [(reconstruct, f'{module}._reconstruct'), (scalar, f'{module}.scalar')]
    torch.serialization.add_safe_globals(allowed)


def _history_buffer_statistic(owner: Any, name: Any) -> Any:
    """Stand in for ``getattr`` while a checkpoint is read; see :func:`allow_checkpoint_globals`."""
    from mmengine.logging import HistoryBuffer

    if owner is HistoryBuffer and name in _HISTORY_STATISTICS:
        return getattr(HistoryBuffer, name)
    raise pickle.UnpicklingError(
        f'a checkpoint asks for getattr({owner!r}, {name!r}); only the statistics '
        f'{", ".join(_HISTORY_STATISTICS)} of HistoryBuffer are allowed'
    )


def load_urls_weights_only() -> None:
    """Let mmengine read downloaded checkpoints with ``weights_only=True``, too.

    For ``http(s)://``, ``torchvision://`` and ``open-mmlab://`` mmengine calls ``torch.hub.load_state_dict_from_url``,
    whose default is still ``weights_only=False``. It is the last way for a checkpoint to run code, and its files come
    from elsewhere.

    A second call changes nothing.
    """
    importlib.import_module('mmengine.utils.dl_utils')
    # The runner takes the name from dl_utils when it is imported, perhaps before us.
    for name in ('mmengine.utils.dl_utils', 'mmengine.runner.checkpoint'):
        module: Any = sys.modules.get(name)
        if module is not None and not isinstance(module.load_url, functools.partial):
            module.load_url = functools.partial(module.load_url, weights_only=True)


def read_local_files() -> None:
    """Let mmengine read local weight files with :func:`vitnas_core.checkpoints.read`.

    So ``load_from``, ``resume`` and ``init_cfg=dict(type='Pretrained', …)`` read ``.safetensors`` too, and a damaged
    or hostile file is refused with one sentence. What ``torch.save`` wrote is read as before, by ``torch.load``.

    Takes effect when ``mmengine.runner`` is imported. A second call changes nothing.
    """
    when_imported('mmengine.runner.checkpoint', _register_reader)


def _register_reader(module: Any) -> None:
    module.CheckpointLoader.register_scheme(prefixes='', loader=load_from_local, force=True)


def load_from_local(filename: str, map_location: Any) -> Any:
    """:func:`vitnas_core.checkpoints.read`, under the name that mmengine writes into its log."""
    from ..checkpoints import read  # not when vitnas is imported: it imports layers

    return read(filename, map_location)
