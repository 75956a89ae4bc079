"""Search configs that derive from a training config: remove the parts that only training needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mmengine.config import Config
from mmengine.hooks import EMAHook
from mmengine.registry import HOOKS as MM_HOOKS

from ..registry import LOOPS, class_of
from .loop import SearchLoop

_VALIDATION = ('param_scheduler', 'val_dataloader', 'val_cfg', 'val_evaluator')
_TRAINING_HOOKS = 'vitnas_core.training.'


def is_search(cfg: Config) -> bool:
    """Return whether the loop of a config is a search."""
    train_cfg = cfg.get('train_cfg')
    loop = class_of(LOOPS, train_cfg) if isinstance(train_cfg, Mapping) else None
    return isinstance(loop, type) and issubclass(loop, SearchLoop)


def leave_out_training(cfg: Config) -> None:
    """Remove from a search's config the parts that belong to the supernet's training.

    A search trains nothing and validates by itself. mmengine asks for an optimizer if there is a loop, and gets the
    plainest one. Hooks of :mod:`vitnas_core.training` and averages of weights are removed; other hooks stay.

    Args:
        cfg: The config; changed in place.
    """
    for name in _VALIDATION:
        cfg[name] = None
    cfg.optim_wrapper = dict(optimizer=dict(type='SGD', lr=0.0))
    cfg.custom_hooks = [hook for hook in cfg.get('custom_hooks') or [] if not _trains(hook)]


def _trains(hook: Any) -> bool:
    """Return whether a hook is only useful in training."""
    found = class_of(MM_HOOKS, hook)
    return isinstance(found, type) and (found.__module__.startswith(_TRAINING_HOOKS) or issubclass(found, EMAHook))
