"""Configs that search: what they need not say, though they are based on that of a training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mmengine.config import Config
from mmengine.hooks import EMAHook
from mmengine.registry import HOOKS as MM_HOOKS

from ..registry import LOOPS
from .loop import SearchLoop

_VALIDATION = ('param_scheduler', 'val_dataloader', 'val_cfg', 'val_evaluator')
_TRAINING_HOOKS = 'vitnas_core.training.'


def is_search(cfg: Config) -> bool:
    """Whether the loop of a config is a search."""
    loop = LOOPS.get((cfg.get('train_cfg') or {}).get('type') or 'EpochBasedTrainLoop')
    return isinstance(loop, type) and issubclass(loop, SearchLoop)


def leave_out_training(cfg: Config) -> None:
    """Take out of a search's config what belongs to the training of the supernet.

    A search trains nothing and validates by itself. mmengine asks for an optimizer wherever there is a loop, and gets
    the plainest. Of the hooks, those of :mod:`vitnas_core.training` and averages of weights go.

    Args:
        cfg: The config; it is changed.
    """
    for name in _VALIDATION:
        cfg[name] = None
    cfg.optim_wrapper = dict(optimizer=dict(type='SGD', lr=0.0))
    cfg.custom_hooks = [hook for hook in cfg.get('custom_hooks') or [] if not _trains(hook)]


def _trains(hook: Any) -> bool:
    """Whether a hook is of use in a training only."""
    kind = hook.get('type') if isinstance(hook, Mapping) else type(hook)
    found = MM_HOOKS.get(kind) if isinstance(kind, str) else kind
    return isinstance(found, type) and (found.__module__.startswith(_TRAINING_HOOKS) or issubclass(found, EMAHook))
