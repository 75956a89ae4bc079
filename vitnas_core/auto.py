"""``'auto'`` channels and strides: a config leaves them to the backbone, behind necks too.

They are filled in wherever a model is built (:mod:`vitnas_core.integration.model_build`): by ``tools/train.py``, by
mmdet's or mmseg's own tools, by ``init_detector``.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from mmengine.registry import MODELS as MM_MODELS
from mmengine.registry import Registry
from mmengine.utils import get_object_from_string

from .backbones.base import ElasticBackbone
from .errors import VitnasError
from .necks import SimpleFeaturePyramid
from .registry import MODELS

AUTO = 'auto'
"""Value in a config for a number that follows from the backbone."""

_CHANNELS, _PRIORS, _EXTRACTOR, _HEAD = 'in_channels', 'strides', 'featmap_strides', 'feature_strides'
_KEYS = (_CHANNELS, _PRIORS, _EXTRACTOR, _HEAD)


@dataclass(frozen=True)
class Features:
    """The feature maps at one place of a model.

    Args:
        channels: Channels of each map.
        strides: Stride of each map.
        own: Number of maps that come from a map of the backbone; a neck makes further ones by pooling.
    """

    channels: tuple[int, ...]
    strides: tuple[float, ...]
    own: int

    @classmethod
    def of(cls, backbone: ElasticBackbone) -> Features:
        """Return the features of a backbone."""
        return cls(backbone.out_channels(), backbone.out_strides(), len(backbone.out_strides()))

    def behind(self, neck: Mapping[str, Any], registry: Registry) -> Features:
        """Return the features behind a neck, judged by its arguments.

        ``scales`` (ours, mmseg's ``MultiLevelNeck``) and ``rescales`` (mmseg's ``Feature2Pyramid``) resize maps.
        ``start_level`` and ``end_level`` select them. ``num_outs`` is their number; each further one is half as large.

        Args:
            neck: Config of the neck.
            registry: Registry of its class, for the defaults of its arguments.

        Raises:
            VitnasError: The neck uses none of the maps.
        """
        kind = _class(neck.get('type'), registry)
        args = {**_defaults(kind), **neck}
        last = args.get('end_level', -1)
        used = slice(args.get('start_level') or 0, None if last == -1 else last + 1)
        strides, channels = list(self.strides[used]), self.channels[used]
        if not strides:
            raise VitnasError(
                f'{neck.get("type")} should use at least one of the {len(self.strides)} features, but got '
                f'start_level={args.get("start_level")}, end_level={last}; see out_indices of the backbone'
            )
        scales = args.get('scales', args.get('rescales'))
        if scales is not None:
            if len(strides) == 1 or (isinstance(kind, type) and issubclass(kind, SimpleFeaturePyramid)):
                strides = strides[-1:] * len(scales)
            strides = [stride / scale for stride, scale in zip(strides, scales)]
        own = len(strides)
        while len(strides) < int(args.get('num_outs') or own):
            strides.append(2 * strides[-1])
        out = args.get('out_channels')
        if isinstance(out, int):
            channels = (out,) * len(strides)
        elif isinstance(out, (list, tuple)):
            channels = tuple(out)
        return Features(channels, tuple(int(s) if s == int(s) else s for s in strides), own)


def fill_auto(model_cfg: Mapping[str, Any], registry: Registry = MM_MODELS) -> Any:
    """Return a copy of a model's config with a number, or a list of numbers, for every ``'auto'``.

    - ``in_channels`` of a neck: channels of the backbone's outputs. A list, or a number if there is one output and the
      neck makes one of it.
    - ``in_channels`` of a head: channels of the features that it reads behind the neck, by ``in_index``; without that,
      of the last one.
    - ``strides`` of anchors: strides of all levels.
    - ``featmap_strides`` of an RoI extractor: strides of the levels that hold a map of the backbone.
    - ``feature_strides`` of a segmentation head: strides of the features that it reads.

    Args:
        model_cfg: Config of a model with a ``backbone`` of vitnas; other models are returned as they are.
        registry: The registry that builds the model. Defaults to mmengine's.

    Raises:
        VitnasError: A value is unknown: the backbone is not of vitnas, or has no such output.
    """
    filled = copy.deepcopy(model_cfg)
    with registry.switch_scope_and_registry(filled.get('_scope_')) as found:
        for owner in _owners(filled):
            if any(_asks(node) for node in _parts(owner)):
                follow(owner, None, build_backbone(owner['backbone']), found)
    for node in _dicts(filled):
        _refuse(node)
    return filled


def follow(
    owner: dict[str, Any], old: ElasticBackbone | None, new: ElasticBackbone, registry: Registry = MM_MODELS
) -> None:
    """Set the channels of necks and heads for a new backbone if they are ``'auto'`` or those of the old one.

    Args:
        owner: The part of a model's config with the ``backbone``; changed in place.
        old: The backbone of the config, None for ``'auto'``.
        new: The new backbone.
        registry: Registry of necks. Defaults to mmengine's.

    Raises:
        VitnasError: A head reads an output that the backbone does not have.
    """
    before, now = None if old is None else Features.of(old), Features.of(new)
    necks = owner.get('neck') or []
    for neck in necks if isinstance(necks, (list, tuple)) else [necks]:
        _fill_neck(neck, before, now, registry)
        before, now = (None if before is None else before.behind(neck, registry)), now.behind(neck, registry)
    for name, part in owner.items():
        if name not in ('backbone', 'neck'):
            for node in _parts(part, inside=True):
                _fill_head(node, before, now)


def _fill_neck(neck: dict[str, Any], before: Features | None, now: Features, registry: Registry) -> None:
    """Set the input channels of a neck; necks that can make several maps of one, as FPN, take a list in any case."""
    value, args = _plain(neck.get(_CHANNELS)), {**_defaults(_class(neck.get('type'), registry)), **neck}
    if _is_auto(value):
        several = len(now.channels) > 1 or 'num_outs' in args or 'scales' in args
        neck[_CHANNELS] = list(now.channels) if several else now.channels[0]
    elif before is not None and value == list(before.channels):
        neck[_CHANNELS] = list(now.channels)
    elif before is not None and len(before.channels) == 1 and value == before.channels[0]:
        neck[_CHANNELS] = now.channels[0]


def _fill_head(node: dict[str, Any], before: Features | None, now: Features) -> None:
    """Set channels and strides of a part of a head."""
    value = _plain(node.get(_CHANNELS))
    fits = before is not None and value is not None and value == _read_by(node, before.channels)
    if _is_auto(value) or fits:
        node[_CHANNELS] = _read_by(node, now.channels)
        _check_read(node, _CHANNELS, now)
    if _is_auto(node.get(_PRIORS)):
        node[_PRIORS] = list(now.strides)
    if _is_auto(node.get(_EXTRACTOR)):
        node[_EXTRACTOR] = list(now.strides[: now.own])
    if _is_auto(node.get(_HEAD)):
        node[_HEAD] = _read_by(node, now.strides)
        _check_read(node, _HEAD, now)


def _check_read(node: Mapping[str, Any], key: str, now: Features) -> None:
    if node[key] is None:
        raise VitnasError(
            f'in_index of {node.get("type")} is {node.get("in_index")}, but there are {len(now.channels)} features to '
            f'read; see out_indices of the backbone'
        )


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, (list, tuple)) else value


def _read_by(head: Mapping[str, Any], values: Sequence[Any]) -> Any:
    """Return the values of the features that a head reads; None if there is no such feature."""
    index = head.get('in_index', -1)
    try:
        return [values[i] for i in index] if isinstance(index, (list, tuple)) else values[index]
    except IndexError:
        return None


def _is_auto(value: Any) -> bool:
    return isinstance(value, str) and value == AUTO


def _asks(node: Mapping[str, Any]) -> bool:
    return any(_is_auto(node.get(key)) for key in _KEYS)


def _refuse(node: Mapping[str, Any]) -> None:
    """Refuse remaining ``'auto'``."""
    for key in (key for key in _KEYS if _is_auto(node.get(key))):
        raise VitnasError(
            f'{key} of {node.get("type")} is {AUTO!r}, which needs a backbone of vitnas in the model, e.g. '
            f'backbone=dict(type="vitnas.AutoFormer", …); give the number instead'
        )


def filled(cfg: Any, registry: Registry) -> Any:
    """Fill in the config of a part that is about to be built.

    Args:
        cfg: The config, or a list of them. One without a backbone of vitnas is returned as it is.
        registry: The registry that builds it.

    Raises:
        VitnasError: As :func:`fill_auto`.
    """
    if isinstance(cfg, dict) and _has_ours(cfg):
        return fill_auto(cfg, registry)
    for part in cfg if isinstance(cfg, list) else [cfg]:
        if isinstance(part, dict) and not _has_ours(part):
            for node in _parts(part):
                _refuse(node)
    return cfg


# Where a config has a backbone of vitnas.


def owner_of(model_cfg: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the part of a config with a ``backbone`` of vitnas, None without one."""
    return next(_owners(model_cfg), None)


def _owners(model_cfg: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    return (node for node in _dicts(model_cfg) if _has_ours(node))


def _has_ours(node: Mapping[str, Any]) -> bool:
    backbone = node.get('backbone')
    return isinstance(backbone, dict) and elastic_class(backbone.get('type')) is not None


def elastic_class(kind: Any) -> type[ElasticBackbone] | None:
    """Return the class of a backbone's ``type``, None if it is not of vitnas."""
    if isinstance(kind, str):
        scope, _, name = kind.rpartition('.')
        if '.' in scope:  # a lazy config that was written to a file has the path of the class
            kind = get_object_from_string(kind)
        else:
            kind = MODELS.get(kind) if scope == 'vitnas' else None if scope else MODELS.module_dict.get(name)
    return kind if isinstance(kind, type) and issubclass(kind, ElasticBackbone) else None


def build_backbone(backbone_cfg: Mapping[str, Any]) -> ElasticBackbone:
    """Build a backbone without memory, to read its space, features and costs."""
    cls: Any = elastic_class(backbone_cfg['type'])
    with torch.device('meta'):
        return cls(**{k: v for k, v in backbone_cfg.items() if k not in ('type', 'init_cfg', '_scope_')})


def _class(kind: Any, registry: Registry) -> Any:
    """Return the class of a ``type``, None if it is unknown; the build will say so."""
    if isinstance(kind, str):
        try:
            return registry.get(kind)
        except RuntimeError:
            return None
    return kind


def _defaults(kind: Any) -> dict[str, Any]:
    """Return the arguments of a class with a default."""
    if not isinstance(kind, type):
        return {}
    parameters = inspect.signature(kind).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}


def _dicts(node: Any) -> Iterator[dict[str, Any]]:
    """Yield every dict of a config, from the outside to the inside."""
    if isinstance(node, dict):
        yield node
        node = list(node.values())
    if isinstance(node, (list, tuple)):
        for child in node:
            yield from _dicts(child)


def _parts(node: Any, inside: bool = False) -> Iterator[dict[str, Any]]:
    """Yield the dicts of a model's config except its backbone and models inside it, such as a teacher."""
    if isinstance(node, dict):
        if inside and isinstance(node.get('backbone'), dict):
            return
        yield node
        node = [part for name, part in node.items() if name != 'backbone']
    if isinstance(node, (list, tuple)):
        for child in node:
            yield from _parts(child, inside=True)
