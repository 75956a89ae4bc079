"""Moving the dimensions of a space: a moved space stays valid, and errors say why a space cannot move."""

import json
import re
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.families import SMALL_SPACES, SPACES
from vitnas_core.errors import SpaceError
from vitnas_core.spaces import ABSENT, SearchSpace, StageDimension, stage_dimensions

EVERY = {**SPACES, **{f'small-{name}': space for name, space in SMALL_SPACES.items()}}


def blocks_differ(space: SearchSpace) -> bool:
    return any(len({block for block in stage.blocks if block is not None}) > 1 for stage in space.stages)


MOVABLE = {name: space for name, space in EVERY.items() if not blocks_differ(space)}
movable_space = pytest.mark.parametrize('space', MOVABLE.values(), ids=MOVABLE.keys())
S3 = SPACES['s3-initial']
TOY = SMALL_SPACES['last']  # width 1, 2; depth 0, 1, 3; op a, b; k 3, 5; size 8, 16


def numeric(space: SearchSpace) -> list[StageDimension]:
    return [dimension for dimension in stage_dimensions(space) if not isinstance(dimension.options[0], str)]


def options(space: SearchSpace) -> dict[str, tuple]:
    return {dimension.path: dimension.options for dimension in stage_dimensions(space)}


def after(values: tuple, shift: float) -> list:
    """Eq. 8 in words: all values moved, without those that are not above zero."""
    return [moved for moved in (round(value + shift, 6) for value in values) if moved > 0]


@st.composite
def shifts_of(draw: st.DrawFn, space: SearchSpace, least: int = -4) -> dict[str, float]:
    """Some dimensions by some steps: whole numbers for whole numbers, tenths for others."""
    shifts: dict[str, float] = {}
    for dimension in numeric(space):
        steps = draw(st.one_of(st.just(0), st.integers(least, 5)))
        whole = all(type(value) is int for value in dimension.options)
        if steps:
            shifts[dimension.path] = steps if whole else steps * 0.1
    return shifts


def kept(space: SearchSpace, shifts: Mapping[str, float]) -> dict[str, float]:
    """Those of the shifts that leave an option."""
    return {path: shift for path, shift in shifts.items() if after(options(space)[path], shift)}


def assert_contract(space: SearchSpace, seed: int) -> None:
    """It draws, encodes, mutates, crosses, and reads what it writes."""
    rng = np.random.default_rng(seed)
    a, b = space.sample(rng), space.sample(rng)
    for arch in (a, b, space.mutate(a, 0.5, rng), space.cross(a, b, rng), space.largest(), space.smallest()):
        assert arch in space
        assert space.decode(space.encode(arch)) == arch
    again = SearchSpace.from_json(space.to_json())
    assert again == space and again.to_json() == space.to_json() and hash(again) == hash(space)


# the dimensions


def test_dimensions_of_s3() -> None:
    found = stage_dimensions(S3)
    assert len(found) == 20
    assert [(d.path, d.name, d.options, d.stage, d.of_block) for d in found[5:10]] == [
        ('stages[1].embed_dim', 'embed_dim', (224, 256, 288), 1, False),
        ('stages[1].depth', 'depth', (2, 3, 4), 1, False),
        ('stages[1].block.num_heads', 'num_heads', (7, 8, 9), 1, True),
        ('stages[1].block.mlp_ratio', 'mlp_ratio', (3.0, 3.5, 4.0), 1, True),
        ('stages[1].block.window_size', 'window_size', (7, 14), 1, True),
    ]


def test_dimensions_of_the_whole_network_come_first() -> None:
    assert [d.path for d in stage_dimensions(TOY)] == [
        'size', 'stages[0].width', 'stages[0].depth', 'stages[0].block.op', 'stages[0].block.k'
    ]  # fmt: skip
    assert stage_dimensions(TOY)[0].stage is None


@pytest.mark.parametrize('name', ['optional', 'all-optional'])
def test_single_optional_blocks_leave_no_depth(name: str) -> None:
    assert 'stages[0].depth' not in options(SMALL_SPACES[name])
    assert 'stages[0].block.k' in options(SMALL_SPACES[name])


@movable_space
@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=10, deadline=None)
def test_values_are_what_the_encoding_holds(space: SearchSpace, seed: int) -> None:
    arch = space.sample(np.random.default_rng(seed))
    held: dict[str, list] = {}
    for dim, index in zip(space.dimensions, space.encode(arch)):
        if index != ABSENT:
            held.setdefault(re.sub(r'blocks\[\d+\]\.', 'block.', dim.path), []).append(dim.options[index])
    for dimension in stage_dimensions(space):
        assert list(dimension.values(arch)) == held.get(dimension.path, []), dimension.path
        assert set(dimension.values(arch)) <= set(dimension.options)


def test_absent_blocks_have_no_value() -> None:
    arch = SMALL_SPACES['optional'].smallest()  # the second and fourth of four blocks are absent
    k = next(d for d in stage_dimensions(SMALL_SPACES['optional']) if d.name == 'k')
    assert k.values(arch) == (3, 3)
    none = next(d for d in stage_dimensions(TOY) if d.name == 'k')
    assert none.values(TOY.smallest()) == ()


# moving


@movable_space
@given(data=st.data(), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=20, deadline=None)
def test_a_moved_space_is_a_space(space: SearchSpace, data: st.DataObject, seed: int) -> None:
    shifts = kept(space, data.draw(shifts_of(space)))
    moved = space.evolve(shifts)
    assert (moved.family, moved.name, len(moved.stages)) == (space.family, space.name, len(space.stages))
    for path, values in options(space).items():
        found = options(moved)[path]
        assert found == pytest.approx(after(values, shifts[path])) if path in shifts else found == values, path
        assert {type(value) for value in found} == {type(values[0])}, path
    for stage, old in zip(moved.stages, space.stages):
        assert len(stage.blocks) == stage.depths[-1]
        assert stage.optional == old.optional
    assert_contract(moved, seed)


@movable_space
@given(data=st.data())
@settings(max_examples=20, deadline=None)
def test_there_and_back(space: SearchSpace, data: st.DataObject) -> None:
    """Up and down again is where it was, written the same, unless an option was zero from the start."""
    shifts = data.draw(shifts_of(space, least=1))
    shifts = {path: shift for path, shift in shifts.items() if min(options(space)[path]) > 0}
    back = space.evolve(shifts).evolve({path: -shift for path, shift in shifts.items()})
    assert back == space
    assert back.to_json() == space.to_json()


@movable_space
def test_nothing_to_move(space: SearchSpace) -> None:
    assert space.evolve({}) == space
    assert space.evolve({dimension.path: 0 for dimension in numeric(space)}) == space


@movable_space
def test_dimensions_do_not_touch_each_other(space: SearchSpace) -> None:
    for dimension in numeric(space):
        moved = options(space.evolve({dimension.path: 2}))
        assert moved.pop(dimension.path) != dimension.options
        assert all(options(space)[path] == values for path, values in moved.items())


def test_options_at_zero_and_below_are_dropped() -> None:
    moved = S3.evolve({'stages[0].embed_dim': -256, 'stages[0].block.window_size': -7, 'stages[1].depth': -2})
    found = options(moved)
    assert found['stages[0].embed_dim'] == (32,)
    assert found['stages[0].block.window_size'] == (7,)
    assert found['stages[1].depth'] == (1, 2)
    assert found['stages[2].depth'] == (2, 3, 4)


def test_a_zero_that_was_there_stays_until_its_dimension_moves() -> None:
    assert options(TOY.evolve({'size': 8}))['stages[0].depth'] == (0, 1, 3)
    assert options(TOY.evolve({'stages[0].depth': 1}))['stages[0].depth'] == (1, 2, 4)
    assert options(TOY.evolve({'stages[0].depth': -1}))['stages[0].depth'] == (2,)


def test_depth_makes_and_removes_blocks() -> None:
    deep, shallow = S3.evolve({'stages[2].depth': 3}), S3.evolve({'stages[2].depth': -3})
    assert (deep.stages[2].depths, shallow.stages[2].depths) == ((5, 6, 7), (1,))
    assert [len(space.stages[2].blocks) for space in (deep, S3, shallow)] == [7, 4, 1]
    assert set(deep.stages[2].blocks) == set(shallow.stages[2].blocks) == set(S3.stages[2].blocks)
    assert len(deep.largest().stages[2].blocks) == 7
    assert [len(deep.stages[s].blocks) for s in (0, 1, 3)] == [4, 4, 4]


def test_new_blocks_have_the_moved_choices() -> None:
    moved = S3.evolve({'stages[0].depth': 1, 'stages[0].block.num_heads': 2})
    assert [block['num_heads'] for block in moved.largest().stages[0].blocks if block is not None] == [11] * 5
    assert moved.largest().stages[1] == S3.largest().stages[1]


def test_always_empty_places_stay_empty() -> None:
    stage = dict(blocks=[dict(k=[1, 2]), None, dict(k=[1, 2])])
    space = SearchSpace.from_dict(dict(family='toy', stages=[stage]))
    assert list(options(space)) == ['stages[0].block.k']
    moved = space.evolve({'stages[0].block.k': 3})
    assert [block is None for block in moved.stages[0].blocks] == [False, True, False]
    assert moved.largest().to_dict()['stages'] == [dict(blocks=[dict(k=5), None, dict(k=5)])]
    assert_contract(moved, 0)


def test_options_that_fall_are_moved_alike() -> None:
    """The larger network can have the smaller number: patches of ViTAS-DeiT."""
    space = SPACES['vitas-deit-tiny']
    assert options(space.evolve({'patch_size': 2}))['patch_size'] == (34, 18, 16)
    assert options(space.evolve({'patch_size': -16}))['patch_size'] == (16,)


# numbers


def test_a_ratio_is_what_one_writes() -> None:
    for shift in (-0.5 * 3, -1.5):
        moved = S3.evolve({'stages[0].block.mlp_ratio': shift})
        assert repr(options(moved)['stages[0].block.mlp_ratio']) == '(1.5, 2.0, 2.5)'
    stage = dict(ratio=[i / 10 for i in range(1, 11)])
    tenths = SearchSpace.from_dict(dict(family='toy', stages=[stage])).evolve({'stages[0].ratio': 3 * 0.1})
    assert json.dumps(options(tenths)['stages[0].ratio']) == str([i / 10 for i in range(4, 14)])


@pytest.mark.parametrize('shift', [2, 2.0, -2.0, np.int64(2), np.float64(2)])
def test_whole_numbers_stay_whole(shift: float) -> None:
    moved = options(S3.evolve({'stages[0].block.num_heads': shift, 'stages[0].depth': abs(shift)}))
    assert repr(moved['stages[0].block.num_heads']) == repr(tuple(range(7 + int(shift), 10 + int(shift))))
    assert repr(moved['stages[0].depth']) == '(4, 5, 6)'


def test_whole_numbers_by_a_fraction_become_fractions() -> None:
    assert (
        repr(options(S3.evolve({'stages[0].block.num_heads': 0.5}))['stages[0].block.num_heads']) == '(7.5, 8.5, 9.5)'
    )


# refusals


@pytest.mark.parametrize('space', [s for s in EVERY.values() if blocks_differ(s)])
def test_blocks_that_differ_are_refused(space: SearchSpace) -> None:
    for refused in (lambda: stage_dimensions(space), lambda: space.evolve({'stages[0].block.k': 1})):
        with pytest.raises(SpaceError, match=r'stages\[0\].blocks offer different options; .* so give `block` instead'):
            refused()


@pytest.mark.parametrize(
    ('space', 'shifts', 'message'),
    [
        (TOY, {'stages[0].block.op': 1}, r'stages\[0\].block.op offers words, a, b, which cannot be moved'),
        (TOY, {'width': 1}, r'there is no dimension width to move; the space has size, stages\[0\].width, '),
        (TOY, {'stages[1].width': 1}, r'there is no dimension stages\[1\].width to move'),
        (TOY, {'stages[0].blocks[0].k': 1}, r'there is no dimension stages\[0\].blocks\[0\].k to move'),
        (SMALL_SPACES['optional'], {'stages[0].depth': 1}, r'there is no dimension stages\[0\].depth to move'),
        (S3, {'stages[3].embed_dim': -288}, r'embed_dim moved by -288 has no option above 0 left: -64, -32, 0'),
        (S3, {'stages[3].depth': -4}, r'stages\[3\].depth moved by -4 has no option above 0 left: -2, -1, 0'),
        (S3, {'stages[3].depth': 0.5}, r'stages\[3\].depth should move by whole blocks, but got 0.5'),
    ],
)  # fmt: skip
def test_refusals(space: SearchSpace, shifts: dict[str, float], message: str) -> None:
    with pytest.raises(SpaceError, match=message):
        space.evolve(shifts)


@movable_space
@given(data=st.data())
@settings(max_examples=5, deadline=None)
def test_a_dimension_without_an_option_left_is_refused(space: SearchSpace, data: st.DataObject) -> None:
    if not numeric(space):
        return
    dimension = data.draw(st.sampled_from(numeric(space)))
    with pytest.raises(SpaceError, match=re.escape(f'{dimension.path} moved by ')):
        space.evolve({dimension.path: -max(float(value) for value in dimension.options) or -1})
