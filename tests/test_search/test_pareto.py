"""The Pareto front and the ranking, against their definitions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from vitnas_core.search import Candidate, pareto_front, ranked
from vitnas_core.spaces import Arch

ARCH = Arch('toy', ())


@st.composite
def populations(draw: st.DrawFn) -> list[Candidate]:
    rows = draw(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6), st.booleans(), st.sampled_from([0.5, 1.0]))))
    return [
        Candidate(i, 0, ARCH, {'macs': float(macs), 'params': 1.0}, float(score), fraction=share, complete=complete)
        for i, (macs, score, complete, share) in enumerate(rows)
    ]


def dominates(a: Candidate, b: Candidate) -> bool:
    no_worse = a.score >= b.score and a.cost['macs'] <= b.cost['macs']
    return no_worse and (a.score > b.score or a.cost['macs'] < b.cost['macs'])


@given(populations())
def test_the_front_is_the_set_that_nothing_dominates(candidates: list[Candidate]) -> None:
    front, whole = pareto_front(candidates), [c for c in candidates if c.complete and c.fraction == 1.0]
    assert {c.id for c in front} <= {c.id for c in whole}
    assert not any(dominates(a, b) for a in whole for b in front)
    for candidate in whole:  # whoever is not on it is dominated, or equal to one that is
        same = [c for c in front if (c.score, c.cost) == (candidate.score, candidate.cost)]
        assert candidate in front or same or any(dominates(c, candidate) for c in front)
    macs = [c.cost['macs'] for c in front]
    assert macs == sorted(set(macs))


@given(populations())
def test_the_best_is_the_dearest_of_the_front(candidates: list[Candidate]) -> None:
    best = ranked(candidates)
    assert bool(best) == any(c.complete and c.fraction == 1.0 for c in candidates)
    if best:
        assert best[0] == pareto_front(candidates)[-1]
        keys = [(-c.score, c.cost['macs'], c.id) for c in best]
        assert keys == sorted(keys)


def test_another_cost() -> None:
    a = Candidate(0, 0, ARCH, {'macs': 1.0, 'latency': 5.0}, 1.0)
    b = Candidate(1, 0, ARCH, {'macs': 2.0, 'latency': 4.0}, 1.0)
    assert pareto_front([a, b]) == [a]
    assert pareto_front([a, b], 'latency') == [b]
