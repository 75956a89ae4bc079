"""Configs of runs that train no network: remove what they inherit from the training of the supernet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mmengine.config import Config
from mmengine.hooks import Hook
from mmengine.logging import print_log
from mmengine.registry import HOOKS as MM_HOOKS
from mmengine.registry import Registry

from ..registry import LOOPS, class_of
from ..training import SamplerTrainLoop
from .loop import SearchLoop

_TRAINING = ('param_scheduler', 'val_dataloader', 'val_cfg', 'val_evaluator')
_STANDARD_HOOKS = ('runtime_info', 'timer', 'sampler_seed', 'logger', 'param_scheduler', 'checkpoint')
"""mmengine's own ``default_hooks``; they do no harm."""
_STEPS = ('before_train_epoch', 'after_train_epoch', 'before_train_iter', 'after_train_iter')
_OUR_HOOKS = 'vitnas_core.training.'


def is_search(cfg: Config) -> bool:
    """Return whether the loop of a config is a search."""
    return _has_loop(cfg, SearchLoop)


def leave_out_training(cfg: Config) -> None:
    """Remove from the config of a search or of a sampler's training the parts that belong to the supernet's training.

    Both train no network and need no validation. So schedules, validation and training hooks are removed. A training
    hook acts in iterations or epochs of a training, as averages of weights and mmpretrain's ``SwitchRecipeHook`` do, or
    comes from :mod:`vitnas_core.training`. Other hooks stay, e.g. one that sends a message after the run. mmengine's
    own default hooks stay, too. A search gets the plainest optimizer, because mmengine asks for one.

    Does nothing to other configs.

    Args:
        cfg: The config; changed in place.
    """
    if not _has_loop(cfg, (SearchLoop, SamplerTrainLoop)):
        return
    for name in _TRAINING:
        cfg[name] = None
    if is_search(cfg):
        cfg.optim_wrapper = dict(optimizer=dict(type='SGD', lr=0.0))
    with MM_HOOKS.switch_scope_and_registry(cfg.get('default_scope')) as registry:
        hooks = cfg.get('custom_hooks') or []
        cfg.custom_hooks = [hook for hook in hooks if not _trains(hook, registry)]
        if left := [str(hook.get('type')) for hook in hooks if hook not in cfg.custom_hooks]:
            print_log(f'This run trains no network, so it leaves out the hooks {", ".join(left)}.', 'current')
        for name, hook in dict(cfg.get('default_hooks') or {}).items():
            if name not in _STANDARD_HOOKS and _trains(hook, registry):
                del cfg.default_hooks[name]


def _has_loop(cfg: Config, kinds: type | tuple[type, ...]) -> bool:
    """Return whether the training loop of a config, given by name or as the class itself, is one of some classes."""
    train_cfg = cfg.get('train_cfg')
    loop = class_of(LOOPS, train_cfg) if isinstance(train_cfg, Mapping) else None
    return isinstance(loop, type) and issubclass(loop, kinds)


def _trains(hook: Any, registry: Registry) -> bool:
    """Return whether a hook is only useful in training."""
    kind = class_of(registry, hook)
    if not isinstance(kind, type):
        return False  # the runner says what is wrong with it
    acts = (getattr(kind, name, None) is not getattr(Hook, name) for name in _STEPS)
    return kind.__module__.startswith(_OUR_HOOKS) or any(acts)
