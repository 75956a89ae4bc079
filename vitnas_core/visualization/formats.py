"""Numbers and words as people read them: 5.87 M, 1.283 G, 94.70 %, 12.5 ms."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from ..evaluation import in_percent

Baseline = tuple[str, float, Mapping[str, float]]
"""A network to compare with: its name, its score and its costs, e.g. ``('largest', 95.1, {'macs': 2.0e9})``."""

COST_LABELS = {'macs': 'MACs', 'params': 'Parameters', 'latency': 'Latency'}
"""Names of the costs in pictures and tables."""

# Control characters (XML has no spelling for them) and halves of surrogate pairs (UTF-8 has none).
_UNPRINTABLE = re.compile(r'[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]')
_SIZES = ((1e12, 'T', 3), (1e9, 'G', 3), (1e6, 'M', 2), (1e3, 'k', 1))
_TIMES = ((1.0, 's', 2), (1e-3, 'ms', 2), (1e-6, 'µs', 1))


def plain(text: object, length: int = 120) -> str:
    """Make a string valid in every font, XML and UTF-8, and cut it to a length."""
    clean = _UNPRINTABLE.sub('\ufffd', str(text))
    return clean if len(clean) <= length else clean[: length - 1] + '…'


def cost_label(name: str) -> str:
    """Name of a cost in pictures and tables."""
    return COST_LABELS.get(name, plain(name))


def cost_unit(name: str, largest: float) -> tuple[float, str]:
    """Best unit for costs up to ``largest``: its size and its sign, e.g. (1e9, 'G')."""
    table = _TIMES if name == 'latency' else _SIZES
    for size, sign, _ in table:
        if abs(largest) >= size * 0.99995:  # 999,999 is 1.00 M, not 1000.0 k
            return size, sign
    return (table[-1][0], table[-1][1]) if name == 'latency' else (1.0, '')


def cost_text(name: str, value: float | None) -> str:
    """A cost with its unit: 1.283 G, 5.87 M, 12.50 ms; a dash if there is none."""
    if value is None or not math.isfinite(value):
        return '–'
    size, sign = cost_unit(name, value)
    digits = {s: d for _, s, d in (*_SIZES, *_TIMES)}.get(sign, 0)
    return f'{value / size:.{digits}f} {sign}'.strip()


def score_text(metric: str, value: float | None) -> str:
    """A score: 94.70 % if the metric is known to be in percent, else 0.4123."""
    if value is None or not math.isfinite(value):
        return '–'
    return f'{value:.2f} %' if in_percent(metric) else f'{value:.4f}'


def metric_label(metric: str) -> str:
    """The metric for an axis, with its unit."""
    return f'{plain(metric)} (%)' if in_percent(metric) else plain(metric)


def choice_text(value: object) -> str:
    """A choice's value: 4 for 4.0, 3.5, a word as it is."""
    return f'{value:g}' if isinstance(value, float) else plain(value, 24)


def duration_text(seconds: float) -> str:
    """A span of time: 8.4 s, 5 min 3 s, 2 h 10 min."""
    if not math.isfinite(seconds):
        return '–'
    if seconds < 60:
        return f'{seconds:.1f} s'
    whole = round(seconds)
    if whole < 3600:
        return f'{whole // 60} min {whole % 60} s'
    return f'{whole // 3600} h {whole % 3600 // 60} min'


def limits_text(limits: Mapping[str, tuple[float | None, float | None]]) -> str:
    """Limits on costs in words: 'MACs at most 1.400 G, Parameters from 5.00 M to 6.00 M'."""
    words = []
    for name, pair in limits.items():
        low, high = (None if bound is None or math.isinf(bound) else bound for bound in pair)
        if low is not None and high is not None:
            words.append(f'{cost_label(name)} from {cost_text(name, low)} to {cost_text(name, high)}')
        elif high is not None:
            words.append(f'{cost_label(name)} at most {cost_text(name, high)}')
        elif low is not None:
            words.append(f'{cost_label(name)} at least {cost_text(name, low)}')
    return ', '.join(words) or 'none'
