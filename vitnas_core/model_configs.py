"""Whole models around an elastic backbone, and their configs."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from mmengine.config import Config
from mmengine.registry import MODELS as MM_MODELS
from torch import nn

from .auto import build_backbone, fill_auto, follow, owner_of
from .backbones.base import ElasticBackbone, unwrap
from .backbones.module import PRETRAINED, ArchRef, SpaceRef
from .errors import VitnasError


def model_config(cfg: Config) -> Any:
    """Return the config of a model that can be built alone, as a Runner would build it from the whole config.

    Raises:
        VitnasError: The config has no model, or an ``'auto'`` in it is unknown (:func:`~vitnas_core.auto.fill_auto`).
    """
    if not isinstance(cfg.get('model'), Mapping):
        raise VitnasError(f'a config should have a `model`, but {cfg.filename} has none')
    model_cfg = copy.copy(cfg.model)
    for name, value in (('data_preprocessor', cfg.get('data_preprocessor')), ('_scope_', cfg.get('default_scope'))):
        if value is not None:
            model_cfg.setdefault(name, value)
    return fill_auto(model_cfg)


def fixed_config(model_cfg: Mapping[str, Any], arch: ArchRef) -> Any:
    """Return a copy of a supernet's config whose backbone holds only one architecture.

    The channels of neck and head follow, both ``'auto'`` and numbers of the supernet. Weights that ``init_cfg`` names
    belong to the supernet and are left out.

    Args:
        model_cfg: Config of a model with an elastic backbone.
        arch: The architecture: a zoo name, a file, or the data.

    Raises:
        VitnasError: The model has no backbone of vitnas.
        ArchError: The architecture does not fit the weights.
    """
    fixed: Any = copy.deepcopy(model_cfg)
    owner = owner_of(fixed)
    if owner is None:
        raise VitnasError(f'{model_cfg.get("type")} has no backbone of vitnas, e.g. type="vitnas.AutoFormer"')
    supernet = build_backbone(owner['backbone'])
    loaded, _ = supernet.load(arch)
    for node in (fixed, owner, owner['backbone']):
        _drop_pretrained(node)
    # Only `settings` rebuild an extracted network; others, such as a stored width, belong to a space.
    kept = {k: v for k, v in owner['backbone'].items() if k in ('type', 'init_cfg') or k in supernet.settings}
    resolved = {name: supernet.settings[name] for name in supernet.resolved_settings}
    owner['backbone'] = {**kept, **{k: v for k, v in resolved.items() if v is not None}, 'arch': loaded.to_dict()}
    with MM_MODELS.switch_scope_and_registry(fixed.get('_scope_')) as registry:
        follow(owner, supernet, build_backbone(owner['backbone']), registry)
    return fixed


def _drop_pretrained(node: dict[str, Any]) -> None:
    """Remove weights from an ``init_cfg``, which may be a list."""
    init_cfg = node.get('init_cfg')
    if isinstance(init_cfg, (list, tuple)):
        node['init_cfg'] = [cfg for cfg in init_cfg if cfg['type'] not in PRETRAINED]
    elif init_cfg is not None and init_cfg['type'] in PRETRAINED:
        del node['init_cfg']


def space_config(model_cfg: Mapping[str, Any], space: SpaceRef) -> Any:
    """Return a copy of a supernet's config with another search space; channels of neck and head follow.

    Args:
        model_cfg: Config of a model with an elastic backbone.
        space: The space: a zoo name, a file, or the data.

    Raises:
        VitnasError: The model has no backbone of vitnas, or its family cannot have this space.
    """
    changed = copy.deepcopy(model_cfg)
    owner = owner_of(changed)
    if owner is None:
        raise VitnasError(f'{model_cfg.get("type")} has no backbone of vitnas, e.g. type="vitnas.S3"')
    before = build_backbone(owner['backbone'])
    owner['backbone'] = {**owner['backbone'], 'space': space}
    with MM_MODELS.switch_scope_and_registry(changed.get('_scope_')) as registry:
        follow(owner, before, build_backbone(owner['backbone']), registry)
    return changed


def backbone_of(model_cfg: Mapping[str, Any]) -> ElasticBackbone:
    """Build the elastic backbone of a model's config without memory, to read its space, channels and costs.

    Raises:
        VitnasError: The model has no backbone of vitnas.
    """
    owner = owner_of(model_cfg)
    if owner is None:
        raise VitnasError(f'{model_cfg.get("type")} has no backbone of vitnas, e.g. type="vitnas.S3"')
    return build_backbone(owner['backbone'])


def priced_classes(model: nn.Module | Mapping[str, Any]) -> int:
    """Return the classes of the linear head that is priced with the backbone; 0 without one.

    That is a ``head`` with ``num_classes``, as classifiers have it. Detectors and segmentors name their heads
    differently; those are not priced.

    Args:
        model: The model or its config.
    """
    head = model.get('head') if isinstance(model, Mapping) else getattr(unwrap(model), 'head', None)
    classes = head.get('num_classes') if isinstance(head, Mapping) else getattr(head, 'num_classes', None)
    return classes if type(classes) is int else 0
