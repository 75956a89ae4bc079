"""SIGKILL at random moments of a real search; ``tools/benchmarks/kill_search.py`` runs more of them."""

from pathlib import Path
from typing import Any

import pytest

from tools.benchmarks import kill_search as kills

PREDICTOR = dict(
    type='vitnas.PredictorSearchLoop',
    num_samples=20, num_final=10, trees=10, parents=6, mutations=8, crossovers=8, rounds=3,
)  # fmt: skip


@pytest.mark.parametrize(('search', 'least'), [(kills.SEARCH, 25), (PREDICTOR, 21)], ids=['evolution', 'predictor'])
def test_a_killed_search_loses_nothing_and_ends_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, search: dict[str, Any], least: int
) -> None:
    monkeypatch.setattr(kills, 'SEARCH', search)  # its processes are forks of this one
    found = kills.kill_search(tmp_path, kills=4, verbose=False)
    assert found.kills >= 4 and found.searches >= 1 and found.written >= least
    assert found.passed, found
