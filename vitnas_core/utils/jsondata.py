"""Differences of JSON data."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any


def difference(old: Any, new: Any, path: str = '') -> Iterator[str]:
    """Differences of two pieces of JSON data, one text per place: ``constraint.macs: [null, 5] → [null, 6]``."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name in [*old, *(name for name in new if name not in old)]:
            below = f'{path}.{name}' if path else str(name)
            yield from difference(old.get(name), new.get(name), below)
    elif isinstance(old, list) and isinstance(new, list) and _nested(old + new):
        if len(old) != len(new):
            yield f'{path or "all"}: {len(old)} → {len(new)} entries'
            return
        for i, (a, b) in enumerate(zip(old, new)):
            yield from difference(a, b, f'{path}[{i}]')
    elif old != new:
        yield f'{path or "all"}: {json.dumps(old)} → {json.dumps(new)}'


def _nested(values: list[Any]) -> bool:
    return any(isinstance(value, dict) for value in values)
