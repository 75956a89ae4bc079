"""Real SIGKILLs at random moments of a real search; ``tools/benchmarks/kill_search.py`` does more of them."""

from pathlib import Path

from tools.benchmarks.kill_search import kill_search


def test_a_killed_search_loses_nothing_and_ends_the_same(tmp_path: Path) -> None:
    found = kill_search(tmp_path, kills=4, verbose=False)
    assert found.kills >= 4 and found.searches >= 1 and found.written >= 25
    assert found.passed, found
