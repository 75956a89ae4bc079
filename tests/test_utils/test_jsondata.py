"""Differences of JSON data: one short text per place."""

from __future__ import annotations

from typing import Any

import pytest

from vitnas_core.utils.jsondata import difference


@pytest.mark.parametrize(
    ('old', 'new', 'expected'),
    [
        (dict(a=1), dict(a=1), []),
        (3, 4, ['all: 3 → 4']),
        (dict(a=dict(b=[None, 5])), dict(a=dict(b=[None, 6])), ['a.b: [null, 5] → [null, 6]']),
        (dict(a=1, b=2), dict(b=2, c='x'), ['a: 1 → null', 'c: null → "x"']),
        (dict(a=[1, 2]), dict(a=[1]), ['a: [1, 2] → [1]']),
        (dict(a=[1, dict(b=2)]), dict(a=[1, dict(b=3, c=True)]), ['a[1].b: 2 → 3', 'a[1].c: null → true']),
        (dict(a=[dict(b=1)] * 14), dict(a=[dict(b=1)] * 16), ['a: 14 → 16 entries']),
        ([dict(b=1)], [], ['all: 1 → 0 entries']),
        (dict(a=[dict(b=1), 2]), dict(a=[3, 2]), ['a[0]: {"b": 1} → 3']),
        (dict(a=dict(b=1)), dict(a=[1]), ['a: {"b": 1} → [1]']),
        (dict(a=1), dict(a=True), []),  # equal in python
    ],
)
def test_difference(old: Any, new: Any, expected: list[str]) -> None:
    assert list(difference(old, new)) == expected
    assert len(list(difference(new, old))) == len(expected)
