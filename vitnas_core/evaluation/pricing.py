"""Image size and classes for which architectures are priced, read from the model and the pipeline."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

from ..auto import owner_of
from ..costs import Cost
from ..datasets.checks import datasets_in
from ..errors import VitnasError
from ..model_configs import backbone_of, priced_classes
from ..spaces import Arch
from ..utils import checks

# Transforms that give every image the same size: name of the size argument; True if its pairs are (height, width).
# mmdet's RandomCrop has (width, height).
_FIXING = {
    'Resize': ('scale', False),
    'CenterCrop': ('crop_size', False),
    'Pad': ('size', False),
    'RandomCrop': ('crop_size', True),
    'RandomResizedCrop': ('scale', True),
    'EfficientNetCenterCrop': ('crop_size', True),
    'EfficientNetRandomCrop': ('scale', True),
    'DrawDigit': ('size', True),
}
_CHANGING = re.compile('resize|rescale|crop|pad|mosaic|mixup|affine|expand|shear', re.IGNORECASE)

AS_READ, MANY = 'as read', 'many'
"""Stand-ins for a size: no transform changes the images, or transforms give them several sizes."""

Size = int | tuple[int, int]


def resolve_pricing(
    model: Mapping[str, Any], dataloader: Mapping[str, Any], input_size: Any = None, num_classes: int | None = None
) -> tuple[Size, int]:
    """Find the image size and the number of classes for which architectures are priced.

    The image size comes from the last transform of the pipeline that fixes a size, whatever the ``img_size`` of the
    backbone. A classifier whose images keep their size is priced for that ``img_size``. If images have several sizes,
    the size should be stated, unless the backbone resizes images itself. The classes are those of a classifier's head;
    other heads are not priced.

    Args:
        model: Config of the model.
        dataloader: Config of the images.
        input_size: Side, or (height, width), as stated. Defaults to None: not stated.
        num_classes: Classes as stated; 0 to price no head. Defaults to None: not stated.

    Returns:
        The image size, as stated if it is, and the number of classes.

    Raises:
        VitnasError: The size is neither stated nor fixed by the config, or a stated value contradicts the config.
    """
    return _resolve_size(model, dataloader, input_size), _resolve_classes(model, num_classes)


def _resolve_size(model: Mapping[str, Any], dataloader: Mapping[str, Any], stated: Any) -> Size:
    """Return the stated image size, or the one of the config."""
    found, where = _known_size(model, dataloader)
    if stated is None:
        found = found or _own_resolution(model)
        if found is None:
            raise VitnasError(
                '`input_size` should be stated: the pipeline of its images does not resize or crop all '
                'of them to one size (`keep_ratio`, for one, keeps several)'
            )
        return found[0] if found[0] == found[1] else found
    if found is not None and checks.size('input_size', stated) != found:
        raise VitnasError(f'`input_size` is {stated}, but {where}')
    return stated


def _known_size(model: Mapping[str, Any], dataloader: Mapping[str, Any]) -> tuple[tuple[int, int] | None, str]:
    """Return the size that a stated one must equal, None if images may have others, and the reason for an error."""
    found = pipeline_size(dataloader)
    if isinstance(found, tuple):
        divisor = (model.get('data_preprocessor') or {}).get('pad_size_divisor', 1)
        height, width = (-(-side // divisor) * divisor for side in found)
        words = f'the pipeline of its images makes them {height} x {width} (height x width); leave `input_size` out'
        return (height, width), words
    own = (owner_of(model) or {}).get('backbone', {}).get('img_size')
    if found != AS_READ or not priced_classes(model) or own is None:
        return None, ''
    words = (
        f'`img_size` of the backbone is {own}, and the pipeline of its images does not resize them; leave `input_size` '
        f'out, or resize the images'
    )
    return checks.size('img_size', own), words


def _own_resolution(model: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return the size to which a backbone resizes images for its largest architecture; None if it does not.

    Such a backbone prices each architecture at its own resolution, so every size gives the same prices.
    """
    if owner_of(model) is None:
        return None
    backbone, one = backbone_of(model), (1, 1)
    size = backbone.priced_size(backbone.space.largest(), one, backbone.settings.get('out_indices'))
    return None if size == one else size


def _resolve_classes(model: Mapping[str, Any], stated: int | None) -> int:
    """Return the stated number of classes, or the one of the config."""
    head = priced_classes(model)
    if stated and stated != head:
        has = f'the head of the model has {head}' if head else 'the model has no linear `head` that could be priced'
        raise VitnasError(f'`num_classes` is {stated}, but {has}; leave it out')
    return head if stated is None else stated


def pricer(cfg: Mapping[str, Any], price: Callable[..., Cost]) -> Callable[..., Cost]:
    """Price architectures for the images and the head of a config.

    The config is read at the first call, so a sampler that asks for no price needs no stated size.

    Args:
        cfg: Config of a run. The images are those of validation if there is one, otherwise of training.
        price: Gives the cost of an architecture for an image size and a number of classes.

    Returns:
        The same function, but size and classes may be None, and stated ones are checked.
    """

    @cache
    def resolved(size: Any, classes: int | None) -> tuple[Size, int]:
        images = cfg.get('val_dataloader') or cfg.get('train_dataloader') or {}
        return resolve_pricing(cfg.get('model') or {}, images, size, classes)

    def priced(arch: Arch, size: Any = None, classes: int | None = None) -> Cost:
        return price(arch, *resolved(tuple(size) if isinstance(size, list) else size, classes))

    return priced


def pipeline_size(dataloader: Mapping[str, Any]) -> tuple[int, int] | str:
    """Return (height, width) of the images of a dataloader, ``AS_READ`` or ``MANY``."""
    datasets = list(datasets_in(dataloader.get('dataset')))
    sizes = {_last_size(dataset.get('pipeline') or ()) for dataset in datasets}
    return sizes.pop() if len(sizes) == 1 else MANY


def _last_size(pipeline: Iterable[Any]) -> tuple[int, int] | str:
    """The size after the last transform."""
    size: tuple[int, int] | str = AS_READ
    for transform in (one for one in pipeline if isinstance(one, Mapping)):
        kind = transform.get('type')
        path = kind if isinstance(kind, str) else f'{getattr(kind, "__module__", "")}.{getattr(kind, "__name__", "")}'
        name = path.rpartition('.')[2]
        key, height_first = _FIXING.get(name, ('', True))
        value = None if _varies(transform) else transform.get(key)
        if isinstance(value, (int, list, tuple)):
            first, second = checks.size(key, value)
            of_mmdet = name == 'RandomCrop' and (path.startswith('mmdet.') or 'crop_type' in transform)
            size = (first, second) if height_first and not of_mmdet else (second, first)
        elif _CHANGING.search(name) or 'transforms' in transform:
            size = MANY
    return size


def _varies(transform: Mapping[str, Any]) -> bool:
    """Return whether a transform gives several sizes, whatever size it names, as some types of mmdet's crops do."""
    return bool(transform.get('keep_ratio')) or transform.get('crop_type', 'absolute') != 'absolute'
