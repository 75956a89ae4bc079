"""``'auto'`` channels, filled in wherever a model is built."""

from __future__ import annotations

from typing import Any

from mmengine.config import Config
from mmengine.registry import MODELS, Registry, build_model_from_cfg
from torch import nn


def build_model(cfg: Any, registry: Registry, default_args: Any = None) -> nn.Module:
    """Build a model as mmengine does, after every ``'auto'`` is filled in.

    Raises:
        VitnasError: As :func:`~vitnas_core.auto.fill_auto`.
    """
    from ..auto import filled  # not when vitnas is imported: it imports all backbones

    plain = cfg._cfg_dict if isinstance(cfg, Config) else cfg  # what build_model_from_cfg does to it first
    return build_model_from_cfg(filled(plain, registry), registry, default_args)


def fill_auto_when_built(root: Registry = MODELS) -> None:
    """Make every registry of models build with :func:`build_model`, also registries of projects imported later.

    mmdet's, mmseg's and mmpretrain's own tools build models through these registries, and so does ``init_detector``:
    one line of config then works in all of them. Registries copy the function of their parent when they are made.

    Does nothing to a registry with its own build function. :func:`build_model` does not change a config that has
    neither ``'auto'`` nor a backbone of vitnas.
    """
    if root.build_func is build_model_from_cfg:
        root.build_func = build_model
    for registry in root.children.values():
        fill_auto_when_built(registry)
