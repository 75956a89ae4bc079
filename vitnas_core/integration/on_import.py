"""Run code when a library is imported, without importing it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

Action = Callable[[ModuleType], object]

_waiting: dict[str, list[Action]] = {}


def when_imported(name: str, action: Action) -> None:
    """Call an action with a module, now if it is imported already, else as soon as it is.

    Args:
        name: Full name of the module.
        action: Called once, after the module has run.
    """
    module = sys.modules.get(name)
    if module is not None:
        action(module)
        return
    _waiting.setdefault(name, []).append(action)
    if not any(isinstance(finder, _Watch) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Watch())


class _Watch(MetaPathFinder):
    """Import finder that adds waiting actions to modules found by the other finders; it finds none by itself."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a module that an action waits for."""
        if fullname not in _waiting:
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(fullname, path, target)
            if spec is not None:
                loader: Any = spec.loader
                if hasattr(loader, 'exec_module'):
                    loader.exec_module = partial(_run, loader.exec_module)  # the loader is this module's alone
                return spec
        return None


def _run(execute: Action, module: ModuleType) -> None:
    execute(module)
    for action in _waiting.pop(module.__name__, []):
        action(module)
