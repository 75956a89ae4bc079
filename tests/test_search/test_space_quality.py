"""S3's E-T error and the moves of a space: the equations by hand, and their edge cases."""

import itertools
import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.families import SMALL_SPACES, SPACES
from vitnas_core.errors import SpaceError, VitnasError
from vitnas_core.search.space_quality import (
    TOP,
    Sample,
    SpaceEvolution,
    SpaceQuality,
    SpaceStep,
    Tendency,
    subspaces,
)
from vitnas_core.spaces import Arch, SearchSpace, stage_dimensions

S3 = SPACES['s3-initial']
S3_STEPS = dict(depth=1, embed_dim=64, num_heads=2, mlp_ratio=0.5, window_size=7)
TOY = SearchSpace.from_dict(
    dict(family='toy', stages=[dict(width=[16, 32, 48], depth=[1, 2], block=dict(k=[3, 5], op=['a', 'b']))])
)
WIDTH, DEPTH, KERNEL, OP = stage_dimensions(TOY)


def width_of(arch: Arch) -> float:
    return float(arch.stages[0]['width'])


def judged(error: Callable[[Arch], float], space: SearchSpace = TOY) -> list[Sample]:
    """Every architecture with an error."""
    return [Sample(arch, error(arch)) for arch in space.iterate()]


def sloped(slope: float) -> list[Sample]:
    """Errors on a line over the width: so many percent for 16."""
    return judged(lambda arch: 30 + slope * width_of(arch) / 16)


def tendency(rule: SpaceEvolution, samples: list[Sample], name: str = 'width', space: SearchSpace = TOY) -> Tendency:
    return next(t for t in rule.tendencies(space, samples) if t.dimension.name == name)


# the E-T error (Eq. 5)


def test_quality_by_hand() -> None:
    found = SpaceQuality.of(float(i) for i in range(100, 0, -1))
    assert (found.expected, found.top, found.et_error, found.count) == (50.5, 25.5, 38.0, 100)


@pytest.mark.parametrize('count', [1, 7, TOP - 1, TOP])
def test_with_few_architectures_the_best_are_all(count: int) -> None:
    found = SpaceQuality.of([float(i) for i in range(count)])
    assert found.expected == found.top == found.et_error == (count - 1) / 2
    assert found.count == count


@given(st.lists(st.floats(0, 100), min_size=1, max_size=200))
def test_quality_of_any_errors(errors: list[float]) -> None:
    found, best = SpaceQuality.of(errors), sorted(errors)[:50]
    expected, top = math.fsum(errors) / len(errors), math.fsum(best) / len(best)
    assert (found.expected, found.top) == (pytest.approx(expected, abs=1e-9), pytest.approx(top, abs=1e-9))
    assert found.et_error == pytest.approx((expected + top) / 2, abs=1e-9)
    assert found.top <= found.expected + 1e-9


def test_quality_of_a_step_is_that_of_its_samples() -> None:
    samples = tuple(sloped(1.0))
    assert SpaceStep(TOY, samples).quality == SpaceQuality.of(sample.error for sample in samples)
    assert SpaceStep(TOY, samples).tendencies == ()


# the subspaces of a dimension (Eq. 6)


def test_an_architecture_counts_once_a_block() -> None:
    def arch(width: int, *kernels: int) -> Arch:
        blocks = [dict(k=k, op='a') for k in kernels]
        return Arch.from_dict(dict(family='toy', stages=[dict(width=width, blocks=blocks)]))

    samples = [Sample(arch(16, 3, 3), 10.0), Sample(arch(32, 3, 5), 20.0), Sample(arch(16, 5), 30.0)]
    assert subspaces(KERNEL, samples) == {3: [10.0, 10.0, 20.0], 5: [20.0, 30.0]}
    assert subspaces(DEPTH, samples) == {1: [30.0], 2: [10.0, 20.0]}
    assert subspaces(WIDTH, samples) == {16: [10.0, 30.0], 32: [20.0], 48: []}
    assert subspaces(OP, samples) == {'a': [10.0, 10.0, 20.0, 20.0, 30.0], 'b': []}


def test_absent_blocks_count_nowhere() -> None:
    space = SMALL_SPACES['optional']
    k = next(d for d in stage_dimensions(space) if d.name == 'k')
    samples = [Sample(space.smallest(), 10.0), Sample(space.largest(), 20.0)]
    assert subspaces(k, samples) == {3: [10.0, 10.0], 5: [20.0] * 4}


# the line (Eq. 7)


@given(seed=st.integers(0, 2**32 - 1), count=st.integers(2, 80), unit=st.sampled_from(['step', 'choice']))
@settings(max_examples=30, deadline=None)
def test_slope_is_the_one_of_least_squares(seed: int, count: int, unit: str) -> None:
    rng = np.random.default_rng(seed)
    samples = [Sample(S3.sample(rng), float(rng.uniform(20, 40))) for _ in range(count)]
    rule = SpaceEvolution(S3_STEPS, unit=unit)
    for found in rule.tendencies(S3, samples):
        dimension = found.dimension
        by_choice = subspaces(dimension, samples)
        x = [float(choice) for choice, errors in by_choice.items() if errors]
        y = [SpaceQuality.of(errors).et_error for errors in by_choice.values() if errors]
        scale = S3_STEPS[dimension.name] if unit == 'step' else 1
        expected = np.polyfit(np.array(x) / scale, y, 1)[0] if len(x) > 1 else 0.0
        assert found.slope == pytest.approx(expected, abs=1e-9), dimension.path
        assert [None if q is None else q.count for q in found.qualities] == [
            len(errors) or None for errors in by_choice.values()
        ]


@pytest.mark.parametrize(('step', 'unit', 'slope'), [(16, 'step', 0.5), (64, 'step', 2.0), (64, 'choice', 0.5 / 16)])
def test_the_unit_of_a_slope(step: int, unit: str, slope: float) -> None:
    found = tendency(SpaceEvolution(dict(width=step), unit=unit), sloped(0.5))
    assert found.slope == pytest.approx(slope, abs=1e-12)


def test_choices_as_they_are_move_a_wide_dimension_up_by_one_or_not_at_all() -> None:
    rule = SpaceEvolution(dict(width=16), unit='choice')
    assert [tendency(rule, sloped(slope)).steps for slope in (-5.0, -0.1, 0.1, 5.0)] == [1, 1, 0, 0]
    rule = SpaceEvolution(dict(width=16))
    assert [tendency(rule, sloped(slope)).steps for slope in (-5.0, -0.1, 0.1, 5.0)] == [13, 1, 0, -2]


def test_a_choice_that_no_sample_has() -> None:
    samples = [sample for sample in sloped(0.8) if width_of(sample.arch) != 32]
    found = tendency(SpaceEvolution(dict(width=16)), samples)
    assert found.qualities[1] is None and found.slope == pytest.approx(0.8)
    assert (found.steps, found.moved) == (-2, (16,))
    assert found.to_dict()['et_errors'][1] is None and found.to_dict()['counts'][1] == 0


def test_one_point_is_no_line() -> None:
    samples = [sample for sample in sloped(0.8) if width_of(sample.arch) == 32]
    found = tendency(SpaceEvolution(dict(width=16)), samples)
    assert (found.slope, found.steps, found.moved) == (0.0, 0, (16, 32, 48))


# the move (Eq. 8)


@pytest.mark.parametrize(
    ('slope', 'floor', 'symmetric'),
    [
        (-0.01, 1, 0),
        (-0.39, 1, 0),
        (-0.4, 1, 1),
        (-0.41, 2, 1),
        (-1.2, 3, 3),
        (-1.21, 4, 3),
        (0.0, 0, 0),
        (0.01, 0, 0),
        (0.39, 0, 0),
        (0.4, -1, -1),
        (0.41, -1, -1),
        (0.79, -1, -1),
        (0.81, -2, -2),
    ],
)
def test_eq_8_by_hand(slope: float, floor: int, symmetric: int) -> None:
    """v − ⌊w / 0.4⌋ · γ: the floor is towards larger choices, the other rounding towards none."""
    for rounding, steps in (('floor', floor), ('symmetric', symmetric)):
        rule = SpaceEvolution(dict(width=16), rounding=rounding)
        found = tendency(rule, sloped(slope))
        assert found.slope == pytest.approx(slope, abs=1e-12)
        assert found.steps == steps
        assert found.moved == tuple(v + 16 * steps for v in (16, 32, 48) if v + 16 * steps > 0)
        moved = rule.evolve(TOY, rule.tendencies(TOY, sloped(slope)))
        assert dict(moved.stages[0].choices.options)['width'] == found.moved


def test_the_threshold_is_what_a_step_costs() -> None:
    steps = [tendency(SpaceEvolution(dict(width=16), threshold=t), sloped(-1.0)).steps for t in (0.2, 0.5, 1.0, 3.0)]
    assert steps == [5, 2, 1, 1]


@given(st.floats(-20, 20), st.floats(0.05, 5))
@settings(max_examples=50, deadline=None)
def test_symmetric_rounding_is_symmetric_and_the_floor_never_goes_further_down(slope: float, threshold: float) -> None:
    """In a space so far from zero that nothing is dropped."""
    space = SearchSpace.from_dict(dict(family='toy', stages=[dict(width=[10000, 10016, 10032])]))

    def steps(slope: float, rounding: str) -> int:
        rule = SpaceEvolution(dict(width=16), threshold, rounding)
        return tendency(rule, judged(lambda arch: 50 + slope * width_of(arch) / 16, space), space=space).steps

    # The slope has an error of 1e-12 or so, which shows where the quotient is all but whole.
    assume(abs(slope / threshold - round(slope / threshold)) > 1e-6)
    assert steps(slope, 'symmetric') == -steps(-slope, 'symmetric')
    assert steps(slope, 'floor') == -math.floor(slope / threshold)
    assert steps(slope, 'floor') - steps(slope, 'symmetric') == (slope < 0)


def test_flat_errors_move_nothing() -> None:
    for rounding, unit in itertools.product(('floor', 'symmetric'), ('step', 'choice')):
        rule = SpaceEvolution(dict(width=16, depth=1, k=2), rounding=rounding, unit=unit)
        tendencies = rule.tendencies(TOY, judged(lambda arch: 33.3))
        assert [t.steps for t in tendencies] == [0, 0, 0, 0]
        assert rule.evolve(TOY, tendencies) == TOY


@pytest.mark.parametrize(('step', 'steps', 'moved'), [(16, -2, (16,)), (20, -2, (8,)), (48, 0, (16, 32, 48))])
def test_a_dimension_keeps_its_last_choices(step: int, steps: int, moved: tuple[int, ...]) -> None:
    """Where the whole move would leave none, it goes as far as leaves one."""
    rule = SpaceEvolution(dict(width=step))
    found = tendency(rule, sloped(10.0))
    assert found.slope / 0.4 > 20
    assert (found.steps, found.moved) == (steps, moved)
    assert rule.evolve(TOY, [found]).stages[0].choices.options == (('width', moved),)


def test_a_fractional_dimension_keeps_its_last_choices() -> None:
    space = SearchSpace.from_dict(dict(family='toy', stages=[dict(width=[0.3, 0.6, 0.9])]))
    found = tendency(SpaceEvolution(dict(width=0.3)), judged(lambda arch: 30 + 4 * width_of(arch), space), space=space)
    assert (found.steps, found.moved) == (-2, (0.3,))


def test_depth_and_blocks_move_together() -> None:
    rule = SpaceEvolution(dict(depth=1, k=2))
    found = {t.dimension.name: t for t in rule.tendencies(TOY, judged(lambda arch: 40 - 1.1 * arch.stages[0].depth))}
    assert (found['depth'].slope, found['depth'].steps, found['depth'].moved) == (pytest.approx(-1.1), 3, (4, 5))
    moved = rule.evolve(TOY, list(found.values()))
    assert moved.stages[0].depths == (4, 5) and len(moved.largest().stages[0].blocks) == 5


def test_dimensions_without_a_step_stay() -> None:
    rule = SpaceEvolution(dict(depth=1))
    found = rule.tendencies(TOY, sloped(-10.0))
    assert [t.dimension.name for t in found] == ['width', 'depth', 'k', 'op']
    width, depth, kernel, op = found
    for still in (width, kernel, op):
        assert (still.slope, still.steps, still.moved) == (0.0, 0, still.dimension.options)
    assert [q.et_error for q in width.qualities if q is not None] == [20.0, 10.0, 0.0]
    assert rule.evolve(TOY, found).stages[0].choices == TOY.stages[0].choices


def test_one_dimension_of_a_name_in_every_stage() -> None:
    rng = np.random.default_rng(0)
    samples = [Sample(arch, 30 - len(arch.stages[2].blocks)) for arch in (S3.sample(rng) for _ in range(300))]
    rule = SpaceEvolution(dict(depth=1), rounding='symmetric', threshold=0.5)
    moved = rule.evolve(S3, rule.tendencies(S3, samples))
    assert [stage.depths for stage in moved.stages] == [(2, 3, 4), (2, 3, 4), (4, 5, 6), (2, 3, 4)]


# reports and mistakes


def test_a_tendency_is_json() -> None:
    rule = SpaceEvolution(S3_STEPS)
    samples = [Sample(S3.largest(), 20.0), Sample(S3.smallest(), 25.0)]
    data = [t.to_dict() for t in rule.tendencies(S3, samples)]
    assert json.loads(json.dumps(data)) == data
    assert data[0] == dict(
        path='stages[0].embed_dim', choices=[224, 256, 288], et_errors=[25.0, None, 20.0], counts=[1, 0, 1],
        slope=-5.0, wanted=13, steps=13, moved=[1056, 1088, 1120],
    )  # fmt: skip
    assert data[2]['counts'] == [2, 0, 4]  # blocks of the smallest and of the largest


@pytest.mark.parametrize(
    ('settings', 'message'),
    [
        (dict(rounding='ceil'), "`rounding` should be one of floor, symmetric, but got 'ceil'"),
        (dict(unit='percent'), "`unit` should be one of step, choice, but got 'percent'"),
        (dict(threshold=0), '`threshold` should be above 0, but got 0'),
        (dict(threshold=-0.4), '`threshold` should be above 0, but got -0.4'),
        (dict(threshold=float('nan')), '`threshold` should be above 0, but got nan'),
        (dict(steps=dict(depth=0)), '`steps.depth` should be above 0, but got 0'),
        (dict(steps=dict(depth=1, width=-16)), '`steps.width` should be above 0, but got -16'),
        (dict(steps=dict(depth=True)), '`steps.depth` should be above 0, but got True'),
        (dict(steps=dict(depth='1')), "`steps.depth` should be above 0, but got '1'"),
    ],
)
def test_bad_arguments(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(VitnasError) as err:
        SpaceEvolution(**{'steps': dict(depth=1), **settings})
    assert str(err.value) == message


def test_steps_are_checked_against_a_space() -> None:
    SpaceEvolution(S3_STEPS).check(S3)
    SpaceEvolution({}).check(S3)
    for name in ('heads', 'op'):
        with pytest.raises(VitnasError) as err:
            SpaceEvolution({'depth': 1, name: 1}).check(TOY)
        assert str(err.value) == f'`steps` has {name}, but the dimensions that can move are depth, k, width'
    with pytest.raises(SpaceError, match='blocks offer different options'):
        SpaceEvolution(dict(k=1)).check(SMALL_SPACES['holes'])


def test_no_sample_is_refused() -> None:
    with pytest.raises(VitnasError, match='a space is judged by architectures drawn from it, but got none'):
        SpaceEvolution(dict(depth=1)).tendencies(TOY, [])


def test_every_dimension_of_the_space_has_a_tendency() -> None:
    found = SpaceEvolution({}).tendencies(S3, [Sample(S3.largest(), 1.0)])
    assert [t.dimension for t in found] == [*stage_dimensions(S3)]


def test_steps_upwards_are_taken_back_from_the_weakest_on() -> None:
    space = SearchSpace.from_dict(
        dict(family='toy', stages=[dict(width=[4, 6, 8], depth=[2, 3], block=dict(k=[3, 5]))])
    )
    rule = SpaceEvolution(dict(width=2, depth=1, k=2), threshold=1.0)
    steep = judged(lambda arch: 60 - 2.5 * width_of(arch) - 2.2 * arch.stages[0].depth, space)
    wanted = {t.dimension.name: t for t in rule.tendencies(space, steep)}
    assert (wanted['width'].steps, wanted['depth'].steps) == (5, 3)
    kept = rule.restrain(space, list(wanted.values()), lambda moved: int(moved.largest().stages[0]['width'] > 12))
    found = {t.dimension.name: t for t in kept}
    assert (found['width'].wanted, found['width'].steps, found['width'].moved) == (5, 2, (8, 10, 12))
    assert found['depth'].steps == 0 and found['depth'].moved == (2, 3)  # the weaker one went first
    assert rule.restrain(space, list(wanted.values()), lambda moved: 0) == tuple(wanted.values())
    never = rule.restrain(space, list(wanted.values()), lambda moved: 1)
    assert all(t.steps <= 0 for t in never)
    shrinking = rule.tendencies(space, judged(lambda arch: 60 + 2.5 * width_of(arch), space))
    small = rule.restrain(space, shrinking, lambda moved: -int(moved.largest().stages[0]['width'] < 6))
    assert [(t.wanted, t.steps) for t in small if t.dimension.name == 'width'] == [(-5, -1)]
