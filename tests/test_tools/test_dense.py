"""``tools/benchmarks/dense.py`` and its measurement: one row per network, with time and memory."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
import torch

from tools.benchmarks import dense, measure

SIZE = 64 * 2**20


def fill(size: int) -> Callable[[], None]:
    """A run that touches so many bytes."""
    return lambda: torch.ones(size, dtype=torch.uint8).max().item()


@pytest.mark.skipif(sys.platform != 'linux', reason='memory is read as Linux gives it')
def test_peak_memory() -> None:
    assert 0.9 * SIZE < measure.peak_memory(fill, (SIZE,), (1,)) * 2**20 < 1.5 * SIZE
    with pytest.raises(SystemExit, match=r'measuring the memory of fill\(-1,\) failed with exit code 1'):
        measure.peak_memory(fill, (-1,), (1,))


def test_turns() -> None:
    order: list[str] = []
    seconds = measure.turns({name: lambda name=name: order.append(name) for name in 'ab'}, 3)
    assert order == ['a', 'b'] * 4 and [len(seconds[name]) for name in 'ab'] == [3, 3]
    assert measure.ratio(dict(a=[2.0, 4.0, 6.0], b=[1.0, 1.0, 1.0]), 'a', 'b').split()[0] == '4.00x'


@pytest.mark.parametrize('more', [[], ['--train']], ids=['forward', 'train'])
def test_a_row_a_network(more: list[str], capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense, 'peak_memory', lambda make, args, small: make(*small)() or 1.0)
    dense.main(['--shape', '40', '64', '--rounds', '1', *more])
    shown = capsys.readouterr().out
    assert 'one image of 40 x 64' in shown and ('backward' in shown) == bool(more)
    rows = [[cell.strip() for cell in line.strip('|').split('|')] for line in shown.splitlines() if line[:1] == '|']
    assert [row[0] for row in rows[2:]] == list(dense.NETWORKS) and len({len(row) for row in rows}) == 1
    assert rows[-1][5].startswith('1.00x') and rows[-1][1] == '27.5 M'
