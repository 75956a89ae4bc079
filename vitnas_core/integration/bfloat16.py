"""bfloat16 in mmcv and mmdet."""

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch

_MARK = 'no_bfloat16'

# What bfloat16_in_float32() changes: a module, a class, a method.
_NO_BFLOAT16 = (
    ('mmcv.ops.roi_align', 'RoIAlignFunction', 'forward'),
    ('mmcv.ops.focal_loss', 'SigmoidFocalLossFunction', 'forward'),
    ('mmdet.models.dense_heads.base_dense_head', 'BaseDenseHead', 'predict_by_feat'),
    ('mmdet.models.roi_heads.roi_extractors', 'SingleRoIExtractor', 'forward'),
    ('mmdet.models.roi_heads.roi_extractors', 'GenericRoIExtractor', 'forward'),
)


def bfloat16_in_float32() -> None:
    """Let detectors train under bfloat16 autocast: run in float32 what mmcv and mmdet cannot run in bfloat16.

    mmcv has kernels of RoIAlign and the focal loss for float16, float32 and float64 only, on CPUs and GPUs:
    ``"ROIAlign_forward" not implemented for 'BFloat16'``. mmdet computes proposals in the type of the features. That is
    coarse in float16 and too coarse in bfloat16, whose 8 bits move an edge behind pixel 512 by up to 2 pixels. Its NMS
    has no kernel for such boxes either.

    Does nothing to inputs of other types, or if mmcv or mmdet is not imported. A second call changes nothing.
    """
    for module, owner_name, name in _NO_BFLOAT16:
        owner = getattr(sys.modules.get(module), owner_name, None)
        method = vars(owner)[name] if owner is not None else None
        function = getattr(method, '__func__', method)  # autograd functions have static ones
        if function is not None and not hasattr(function, _MARK):
            changed = _without_bfloat16(function)
            setattr(owner, name, staticmethod(changed) if isinstance(method, staticmethod) else changed)


def _without_bfloat16(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function with every bfloat16 argument converted to float32."""

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return function(*_to_float32(args), **{name: _to_float32(value) for name, value in kwargs.items()})

    setattr(wrapped, _MARK, True)
    return wrapped


def _to_float32(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        converted = map(_to_float32, value)
        return type(value)(*converted) if hasattr(value, '_fields') else type(value)(converted)  # named tuples, others
    return value.float() if isinstance(value, torch.Tensor) and value.dtype == torch.bfloat16 else value
