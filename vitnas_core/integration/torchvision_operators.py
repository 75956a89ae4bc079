"""torchvision beside a torch that it was not built for."""

import importlib
import importlib.machinery
import importlib.util
import sys

import torch

# The declared schemas live exactly as long as this object.
_schemas: list[torch.library.Library] = []


def ensure_torchvision() -> bool:
    """Make ``import torchvision`` work if its compiled operators cannot be loaded.

    A torchvision that was built for another torch (often the CUDA build beside a CPU torch) fails to load its library,
    goes on, and dies a moment later: ``RuntimeError: operator torchvision::nms does not exist``. It describes the
    shapes of operators that were never declared. timm and mmpretrain need only its Python parts (transforms), so
    declaring the two operators is enough for them. ``torchvision.ops.nms`` still fails; use ``mmcv.ops.nms``.

    Does nothing if torchvision is not installed, is imported already, or loads its library. In the last case
    torchvision is not even imported. Other failures are not hidden.

    Returns:
        bool: Whether the operators had to be declared, in this call or an earlier one.
    """
    if _schemas or 'torchvision' in sys.modules or _loads_own_operators():
        return bool(_schemas)
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
    _schemas.append(schemas)
    return True


def _loads_own_operators() -> bool:
    """Return whether torchvision is absent or loads its library, without the 2 s of a whole import."""
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
