"""S3's space evolution on a made-up truth: the small version of projects/studies/space_truth.py."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from projects.studies import space_truth
from projects.studies.space_truth import DIMENSIONS, FIRST, STEPS, TRUTH, Counts, Summary, Truth, summarize, weak_moves
from vitnas_core.search.space_quality import SpaceEvolution
from vitnas_core.spaces import Arch, SearchSpace

SEEDS = range(2)
STRONG = [d for d in DIMENSIONS if Truth(TRUTH).pull(d)[1] >= 1]


def mean_error(truth: Truth, space: SearchSpace) -> float:
    rng = np.random.default_rng(0)
    return float(np.mean([truth.error(space.sample(rng)) for _ in range(300)]))


@pytest.fixture(scope='module')
def floor() -> Summary:
    return summarize(Truth(TRUTH), SpaceEvolution(STEPS), SEEDS)


@pytest.fixture(scope='module')
def symmetric() -> Summary:
    return summarize(Truth(TRUTH), SpaceEvolution(STEPS, rounding='symmetric'), SEEDS)


def test_the_truth_knows_where_every_dimension_should_go() -> None:
    """A space that has moved a dimension by one step towards its optimum is better, and one step away is worse."""
    truth = Truth(TRUTH)
    start = mean_error(truth, FIRST)
    for dimension in DIMENSIONS:
        optimum, _ = truth.pull(dimension)
        step = STEPS[dimension.name] * np.sign(optimum)
        assert mean_error(truth, FIRST.evolve({dimension.path: step})) < start, dimension.path
        assert mean_error(truth, FIRST.evolve({dimension.path: -step})) > start, dimension.path
    assert {np.sign(truth.pull(d)[0]) for d in DIMENSIONS} == {-1, 1}


def test_errors_are_percents_and_noise_is_of_the_architecture() -> None:
    truth, rng = Truth(TRUTH, noise=2.0), np.random.default_rng(0)
    archs = [FIRST.sample(rng) for _ in range(300)]
    added = [truth.measure(arch, 1) - truth.error(arch) for arch in archs]
    assert all(0 <= truth.measure(arch, 1) <= 100 for arch in archs)
    assert abs(np.mean(added)) < 0.5 and 1.7 < np.std(added) < 2.3
    again = Arch.from_json(archs[0].to_json())
    assert truth.measure(again, 1) == truth.measure(archs[0], 1) != truth.measure(archs[0], 2)
    assert Truth(TRUTH, noise=0.0).measure(again, 1) == truth.error(again)
    far = FIRST.evolve({'stages[0].embed_dim': 64 * 40})
    assert truth.error(far.largest()) == 100


@pytest.mark.parametrize('name', ['floor', 'symmetric'])
def test_spaces_become_better_and_strong_dimensions_go_the_right_way(name: str, request: pytest.FixtureRequest) -> None:
    summary: Summary = request.getfixturevalue(name)
    assert summary.better == len(SEEDS)
    for run in summary.runs:
        errors = [step.quality.et_error for step in run.steps]
        assert errors == sorted(errors, reverse=True) and len(errors) == 4
    assert summary.total(STRONG) == Counts(len(STRONG) * len(SEEDS), 0, 0)


def test_what_is_asked_for_holds_with_symmetric_rounding(symmetric: Summary) -> None:
    assert symmetric.total().wrong == symmetric.single().wrong == 0
    assert symmetric.holds


def test_the_floor_moves_more_up(floor: Summary, symmetric: Summary) -> None:
    ups = [d for d in DIMENSIONS if floor.truth.pull(d)[0] > 0]
    assert floor.total(ups).right > symmetric.total(ups).right
    assert floor.single().wrong > symmetric.single().wrong


def test_flat_dimensions_climb_by_the_floor_only() -> None:
    _, moves = weak_moves(Truth(TRUTH).scaled(0), range(6), num_samples=500)
    assert moves['floor'].wrong >= 6  # of 24, half expected
    assert moves['symmetric'].wrong + moves['symmetric'].right <= 4


def test_strong_dimensions_do_not_climb() -> None:
    ratios, moves = weak_moves(Truth(TRUTH).scaled(4), range(4))
    assert min(ratios) > 2
    assert moves['floor'] == moves['symmetric'] and moves['floor'].wrong == 0


def test_counting(floor: Summary) -> None:
    assert Counts.of([(-1, -3), (1, 2), (1, 0), (-1, 1), (0.5, -2)]) == Counts(2, 1, 2)
    assert str(Counts(1, 2, 3)) == '1/2/3'
    total, single = floor.total(), floor.single()
    assert total.right + total.still + total.wrong == 20 * len(SEEDS)
    assert single.right + single.still + single.wrong == 20 * len(SEEDS) * 3
    by_dimension = [floor.total([d]) for d in DIMENSIONS]
    assert sum(c.right for c in by_dimension) == total.right and sum(c.wrong for c in by_dimension) == total.wrong


def test_a_wrong_way_does_not_hold(symmetric: Summary) -> None:
    (optimum, strength), *others = TRUTH['depth']
    other = Truth({**TRUTH, 'depth': ((-optimum, strength), *others)})
    found = Summary(other, symmetric.runs)
    assert found.total().wrong == len(SEEDS) and not found.holds


@pytest.mark.parametrize(
    'options', [[], ['--rounding', 'symmetric', '--unit', 'choice', '--noise', '0.5', '--top', '0.2']]
)
def test_the_script_says_whether_it_holds(
    options: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ('summarize', 'weak_moves'):
        monkeypatch.setattr(space_truth, name, partial(getattr(space_truth, name), num_samples=60))
    holds = space_truth.main(['--seeds', '2', '--samples', '60', *options])
    printed = capsys.readouterr().out
    assert ('The test passes.' in printed) == holds
    assert 'of 2 seeds' in printed and 'symmetric' in printed and "unit='choice'" in printed


def test_one_seed_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        space_truth.main(['--seeds', '1'])
    assert '`--seeds` should be at least 2' in capsys.readouterr().err
