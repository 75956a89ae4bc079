"""What mmengine, timm and torchvision need to run together on torch 2.6 and newer, each with its reason.

Each function says when it does nothing; :func:`apply` calls them all, but for :func:`bfloat16_in_float32`, which
bfloat16 training calls. Nothing here imports torchvision or timm to the end, and nothing loosens ``weights_only``.
"""

import functools
import importlib
import importlib.machinery
import importlib.util
import pickle
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

_HISTORY_STATISTICS = ('min', 'max', 'current', 'mean')
_NUMBERS = ('bool', 'int8', 'uint8', *(f'{kind}{bits}' for kind in ('int', 'uint', 'float') for bits in (16, 32, 64)))

# The declared schemas live exactly as long as this object.
_torchvision_schemas: list[torch.library.Library] = []

# What bfloat16_in_float32() mends: a module, a class, a method.
_NO_BFLOAT16 = (
    ('mmcv.ops.roi_align', 'RoIAlignFunction', 'forward'),
    ('mmcv.ops.focal_loss', 'SigmoidFocalLossFunction', 'forward'),
    ('mmdet.models.dense_heads.base_dense_head', 'BaseDenseHead', 'predict_by_feat'),
    ('mmdet.models.roi_heads.roi_extractors', 'SingleRoIExtractor', 'forward'),
    ('mmdet.models.roi_heads.roi_extractors', 'GenericRoIExtractor', 'forward'),
)


def apply() -> None:
    """Mend everything below. Cheap, and a second call changes nothing."""
    ensure_torchvision()
    allow_checkpoint_globals()
    load_urls_weights_only()


def ensure_torchvision() -> bool:
    """Make ``import torchvision`` work where its compiled operators cannot be loaded.

    A torchvision built for another torch (commonly: the CUDA build beside a CPU torch) fails to load its
    library, goes on, and dies a moment later in ``RuntimeError: operator torchvision::nms does not exist``,
    because it describes the shapes of operators that were never declared. timm and mmpretrain import
    torchvision only for its Python parts (transforms), so declaring the two operators is enough for them.
    Calling ``torchvision.ops.nms`` still fails; ``mmcv.ops.nms`` is the one to use.

    Does nothing where torchvision is not installed, is imported already, or loads its library: then its
    own operators are used and torchvision itself is not imported. Any other failure is left as it is.

    Returns:
        bool: Whether the operators had to be declared, in this call or an earlier one.
    """
    if _torchvision_schemas or 'torchvision' in sys.modules or _loads_own_operators():
        return bool(_torchvision_schemas)
    try:
        importlib.import_module('torchvision')
    except RuntimeError as err:
        if 'torchvision::nms' not in str(err):
            raise
    else:
        return False
    # The half-imported modules would be taken for the real ones by the next import.
    for name in [name for name in sys.modules if name.split('.')[0] == 'torchvision']:
        del sys.modules[name]
    schemas = torch.library.Library('torchvision', 'DEF')
    for operator in ('nms', 'qnms'):
        schemas.define(f'{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor')
    _torchvision_schemas.append(schemas)
    return True


def _loads_own_operators() -> bool:
    """Whether torchvision is absent, or its library loads: what torchvision does first, without the 2 s of the rest."""
    package = importlib.util.find_spec('torchvision')
    if package is None:
        return True
    library = importlib.machinery.PathFinder.find_spec('_C', package.submodule_search_locations)
    if library is None or library.origin is None:
        return False
    try:
        torch.ops.load_library(library.origin)
    except (ImportError, OSError):
        return False
    return True


def allow_checkpoint_globals() -> None:
    """Let ``torch.load(weights_only=True)`` read what mmengine puts into a checkpoint.

    Since torch 2.6 that is the default, and mmengine never passes another value, so that
    ``Runner.resume`` and ``load_from`` refuse mmengine's own files: their message hub holds
    ``HistoryBuffer`` objects, numpy arrays and numpy scalars. A ``HistoryBuffer`` also pickles its
    statistics as ``getattr(HistoryBuffer, 'mean')`` and so on. The real ``getattr`` must never be
    allowed, since a file could reach anything with it; a stand-in is registered under its name that
    knows these four methods only.

    Does nothing to a file without these names, and nothing beyond them: another global is refused as before.
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
    """Let mmengine read a downloaded checkpoint with ``weights_only=True`` too.

    For ``http(s)://``, ``torchvision://`` and ``open-mmlab://`` paths mmengine calls
    ``torch.hub.load_state_dict_from_url``, whose default is still ``weights_only=False``: the one way left
    by which a checkpoint could run code, and the one whose files come from elsewhere.

    Does nothing to a module whose ``load_url`` has been mended already.
    """
    importlib.import_module('mmengine.utils.dl_utils')
    # The runner takes the name from dl_utils when it is imported, perhaps before us.
    for name in ('mmengine.utils.dl_utils', 'mmengine.runner.checkpoint'):
        module: Any = sys.modules.get(name)
        if module is not None and not isinstance(module.load_url, functools.partial):
            module.load_url = functools.partial(module.load_url, weights_only=True)


def bfloat16_in_float32() -> None:
    """Let detectors train under bfloat16 autocast: what mmcv and mmdet cannot do in bfloat16 runs in float32.

    mmcv has kernels of RoIAlign and of the focal loss for float16, float32 and float64 only, on CPUs as on GPUs:
    ``"ROIAlign_forward" not implemented for 'BFloat16'``. And mmdet makes proposals, and what RoI extractors get of
    them, in the type of the features: coarse in float16, and too coarse in bfloat16, whose 8 bits move an edge behind
    pixel 512 by up to 2 pixels. Its NMS has no kernel for such boxes either.

    Does nothing to inputs of other types, to a class that is mended already, and where mmcv or mmdet is not imported.
    """
    for module, owner_name, name in _NO_BFLOAT16:
        owner = getattr(sys.modules.get(module), owner_name, None)
        method = vars(owner)[name] if owner is not None else None
        function = getattr(method, '__func__', method)  # autograd functions have static ones
        if function is not None and not hasattr(function, 'no_bfloat16'):
            mended = _without_bfloat16(function)
            setattr(owner, name, staticmethod(mended) if isinstance(method, staticmethod) else mended)


def _without_bfloat16(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with float32 in place of every bfloat16 that it is given."""

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return function(*_to_float32(args), **{name: _to_float32(value) for name, value in kwargs.items()})

    wrapped.no_bfloat16 = True  # type: ignore[attr-defined]
    return wrapped


def _to_float32(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(_to_float32(one) for one in value)
    return value.float() if isinstance(value, torch.Tensor) and value.dtype == torch.bfloat16 else value
