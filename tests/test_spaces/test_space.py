"""Contracts of every search space: draws stay inside, counting is exact, encoding is a bijection."""

import json
import math
import pickle
import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.families import SMALL_SPACES, SPACES
from vitnas_core import zoo
from vitnas_core.errors import ArchError, SpaceError
from vitnas_core.spaces import ABSENT, Arch, SearchSpace

EVERY = {**SPACES, **{f'small-{name}': space for name, space in SMALL_SPACES.items()}}
every_space = pytest.mark.parametrize('space', EVERY.values(), ids=EVERY.keys())
small_space = pytest.mark.parametrize('space', SMALL_SPACES.values(), ids=SMALL_SPACES.keys())
STEPS = 33_334  # draws, mutations and crosses each: 10^5 in all, as many as the suite has time for
# The first of each family by name, with blocks that are absent at the end and at any place.
THOROUGH = {(space.family, any(stage.optional for stage in space.stages)): space for space in reversed(SPACES.values())}


@pytest.mark.parametrize('space', SPACES.values(), ids=SPACES.keys())
def test_a_hundred_thousand_changes_stay_inside(space: SearchSpace, rng: np.random.Generator) -> None:
    """In a space of each kind; in others of its family, which differ in numbers, a tenth of them."""
    partner = space.sample(rng)
    # mutate and cross refuse what is not in the space, so each step checks the one before it.
    for _ in range(STEPS if space in THOROUGH.values() else STEPS // 10):
        partner = space.cross(space.mutate(space.sample(rng), 0.3, rng), partner, rng)
    assert partner in space


@every_space
def test_encoding_is_a_bijection(space: SearchSpace, rng: np.random.Generator) -> None:
    archs = [space.largest(), space.smallest(), *(space.sample(rng) for _ in range(50))]
    archs += [space.arch_at(int(rng.integers(min(space.size(), 2**62)))) for _ in range(50)]
    for arch in archs:
        code = space.encode(arch)
        assert code.shape == (len(space.dimensions),)
        assert space.decode(code) == arch
    codes = {tuple(space.encode(arch)) for arch in archs}
    assert len(codes) == len(set(archs))


@every_space
def test_encoding_names_what_it_holds(space: SearchSpace, rng: np.random.Generator) -> None:
    data, code = (arch := space.sample(rng)).to_dict(), space.encode(arch)
    for dim, index in zip(space.dimensions, code):
        if index == ABSENT or dim.kind == 'depth':
            continue
        value = eval(f'data{_as_keys(dim.path)}', {'data': data})
        assert value == dim.options[index]


def _as_keys(path: str) -> str:
    return ''.join(f"['{part.split('[')[0]}']" + part[len(part.split('[')[0]) :] for part in path.split('.'))


def assert_needs(space: SearchSpace, arch: Arch) -> None:
    """A choice is there exactly where what it needs is."""
    code = space.encode(arch)
    for dim, index in zip(space.dimensions, code):
        assert (index != ABSENT) == all(code[entry] >= least for entry, least in dim.needs), dim.path
        assert all(space.dimensions[entry].kind == 'depth' for entry, _ in dim.needs)


@every_space
def test_choices_are_there_where_what_they_need_is(space: SearchSpace, rng: np.random.Generator) -> None:
    for arch in (space.largest(), space.smallest(), *(space.sample(rng) for _ in range(50))):
        assert_needs(space, arch)


def test_names_of_dimensions() -> None:
    assert [dim.name for dim in SPACES['autoformer-test'].dimensions][:4] == [
        'embed_dim', 'depth', 'num_heads', 'mlp_ratio'
    ]  # fmt: skip
    assert {dim.name for dim in SMALL_SPACES['optional'].dimensions} == {'width', 'depth', 'blocks', 'k'}


@every_space
def test_json_pickle_and_equality(space: SearchSpace) -> None:
    for other in (SearchSpace.from_json(space.to_json()), pickle.loads(pickle.dumps(space))):
        assert other == space
        assert hash(other) == hash(space)
        assert other.size() == space.size()
        assert other.largest() == space.largest()


@every_space
def test_fix_is_a_space_of_one(space: SearchSpace, rng: np.random.Generator) -> None:
    arch = space.sample(rng)
    fixed = space.fix(arch)
    assert fixed.size() == 1
    assert fixed.sample(rng) == fixed.largest() == fixed.smallest() == fixed.arch_at(0) == arch
    assert list(fixed.iterate()) == [arch]


@every_space
def test_the_same_generator_gives_the_same_architectures(space: SearchSpace) -> None:
    def run(seed: int) -> list[Arch]:
        rng = np.random.default_rng(seed)
        a, b = space.sample(rng), space.sample(rng)
        return [a, b, space.mutate(a, 0.5, rng), space.cross(a, b, rng)]

    assert run(1) == run(1)
    state = np.random.get_state()[1].copy()
    run(2)
    assert (np.random.get_state()[1] == state).all()


@every_space
def test_mutation_without_and_with_certainty(space: SearchSpace, rng: np.random.Generator) -> None:
    arch = space.sample(rng)
    assert space.mutate(arch, 0.0, rng) == arch
    # Certain mutation is a fresh draw: every option of every choice turns up.
    seen: dict[str, set] = {}
    for _ in range(400):
        for dim, index in zip(space.dimensions, space.encode(space.mutate(arch, 1.0, rng))):
            if index != ABSENT:
                seen.setdefault(re.sub(r'blocks\[.*\]', 'blocks', dim.path), set()).add(dim.options[index])
    for dim in space.dimensions:
        assert seen[re.sub(r'blocks\[.*\]', 'blocks', dim.path)] >= set(dim.options)


@every_space
def test_mutation_changes_as_often_as_asked(space: SearchSpace, rng: np.random.Generator) -> None:
    """A redraw with probability p gives another of n options with probability p (1 - 1/n)."""
    arch, changed = space.largest(), np.zeros(len(space.dimensions))
    for _ in range(600):
        code = space.encode(space.mutate(arch, 0.3, rng))
        changed += (code != space.encode(arch)) & (code != ABSENT)
    for kind in ('global', 'stage'):  # never absent
        entries = [i for i, dim in enumerate(space.dimensions) if dim.kind == kind]
        expected = sum(0.3 * (1 - 1 / len(space.dimensions[i].options)) for i in entries) * 600
        assert abs(changed[entries].sum() - expected) <= 6 * math.sqrt(expected + 1)


@every_space
@pytest.mark.parametrize('kind', ['global', 'stage', 'depth', 'block'])
def test_mutation_by_kind_changes_that_kind_only(space: SearchSpace, rng: np.random.Generator, kind: str) -> None:
    arch, seen = space.largest(), set()
    for _ in range(30):
        code = space.encode(space.mutate(arch, {kind: 1.0}, rng))
        seen |= {dim.kind for dim, a, b in zip(space.dimensions, code, space.encode(arch)) if a != b and a >= 0}
    assert seen == ({kind} if any(d.kind == kind and len(d.options) > 1 for d in space.dimensions) else set())


@every_space
def test_crossing_takes_from_both_parents(space: SearchSpace, rng: np.random.Generator) -> None:
    taken = [0, 0]
    for _ in range(100):
        a, b = space.sample(rng), space.sample(rng)
        codes = space.encode(a), space.encode(b), space.encode(space.cross(a, b, rng))
        assert all(c in (x, y) or c == ABSENT for x, y, c in zip(*codes))
        for x, y, c in zip(*codes):
            if x != y and c != ABSENT and ABSENT not in (x, y):
                taken[int(c == y)] += 1
    if space.size() > 4:
        assert 0.3 < taken[0] / sum(taken) < 0.7
    assert space.cross(a, a, rng) == a


@small_space
def test_size_and_numbering_are_exact(space: SearchSpace) -> None:
    archs = list(space.iterate())
    assert len(archs) == len(set(archs)) == space.size()
    assert all(arch in space for arch in archs)
    # Every architecture that any encoding can spell is among them.
    spelled = {space.decode(np.array(code)) for code in np.ndindex(*[len(dim.options) for dim in space.dimensions])}
    assert spelled == set(archs)


def test_draws_by_dimension_are_uniform_over_depths(rng: np.random.Generator) -> None:
    space = SMALL_SPACES['last']
    depths = Counter(len(space.sample(rng).stages[0].blocks) for _ in range(3000))
    assert all(abs(depths[d] - 1000) < 150 for d in (0, 1, 3))


@pytest.mark.parametrize(
    ('name', 'size'),
    [
        ('vitas-twins-small', 3.037e79),
        ('vitas-twins-small-free', 3.122e79),
        ('vitas-deit-tiny', 1.292e43),
        ('vitas-deit-tiny-free', 1.341e43),
        ('s3-initial', (3 * (18**2 + 18**3 + 18**4)) ** 4),
        ('vit-resnas-tiny', (5 * (28 * 29) ** 3) ** 3),
    ],
)
def test_published_sizes(name: str, size: float) -> None:
    assert SPACES[name].size() == pytest.approx(size, rel=1e-3)


def test_optional_blocks_can_be_absent_in_the_middle(rng: np.random.Generator) -> None:
    space = SPACES['vit-resnas-tiny']
    assert [b is None for b in space.smallest().stages[0].blocks] == [False, True, False, True, False]
    assert space.largest().stages[0].depth == 6
    assert SPACES['vitas-deit-tiny-free'].smallest().stages[0].blocks == ()
    assert SPACES['vitas-deit-tiny'].largest()['patch_size'] == 14


TINY = SPACES['autoformer-tiny']


def _changed(path: str, value: object) -> Arch:
    data = TINY.largest().to_dict()
    exec(f'data{path} = value', {'data': data, 'value': value})
    return Arch.from_dict(data)


@pytest.mark.parametrize(
    ('arch', 'message'),
    [
        (_changed("['stages'][0]['blocks'][4]['num_heads']", 5),
         'stages[0].blocks[4].num_heads is 5; the space autoformer-tiny offers 3, 4'),
        (_changed("['stages'][0]['embed_dim']", 200),
         'stages[0].embed_dim is 200; the space autoformer-tiny offers 192, 216, 240'),
        (_changed("['family']", 's3'), 'family is s3; the space autoformer-tiny is of autoformer'),
        (_changed("['stages'][0]['blocks'][11:]", []),
         'stages[0].blocks has 11 entries; the space autoformer-tiny offers 12, 13, 14'),
        (_changed("['stages'][0]['blocks'][3]", None), 'stages[0].blocks[3] is absent; the space autoformer-tiny'),
        (_changed("['stages'][0]['blocks'][3]", dict(num_heads=3)), 'stages[0].blocks[3].mlp_ratio is missing'),
        (_changed("['stages'][0]['blocks'][3]['window']", 7), 'stages[0].blocks[3].window is unknown'),
        (_changed("['resolution']", 224), 'resolution is unknown; the space autoformer-tiny has no choice here'),
        (_changed("['stages'][1:]", [dict(embed_dim=3)]), 'stages has 2 entries; the space autoformer-tiny has 1'),
    ],
)  # fmt: skip
def test_errors_begin_with_the_path(arch: Arch, message: str) -> None:
    for check in (TINY.validate, TINY.encode, TINY.fix):
        with pytest.raises(ArchError) as err:
            check(arch)
        assert str(err.value).startswith(message)
    assert arch not in TINY


def test_blocks_without_choices_do_not_hide_errors() -> None:
    """Their entries of the encoding are empty, so they begin where the next stage's do."""
    space = zoo.load_space('nasvit')
    arch = space.largest()
    space.validate(arch)
    data = arch.to_dict()
    del data['stages'][2]['width'], data['stages'][2]['kernel_size'], data['stages'][2]['expand_ratio']
    with pytest.raises(ArchError, match=r'stages\[2\].width is missing'):
        space.validate(Arch.from_dict(data))
    data = arch.to_dict()
    data['stages'][3]['blocks'][4]['heads'] = 3
    with pytest.raises(ArchError, match=r'stages\[3\].blocks\[4\].heads is unknown; .* has no choice here'):
        space.validate(Arch.from_dict(data))


@pytest.mark.parametrize(
    ('stage', 'message'),
    [
        (dict(embed_dim=[]), r'stages\[0\].embed_dim offers no option'),
        (dict(embed_dim=[3, 3]), r'stages\[0\].embed_dim offers an option twice'),
        (dict(embed_dim=[3, 5, 4]), r'stages\[0\].embed_dim should list its options in order'),
        (dict(embed_dim=[3, 'x']), r'stages\[0\].embed_dim should offer numbers or words, not both'),
        (dict(depth=[2, 1], block={}), r'stages\[0\].depth should list whole numbers, smallest first'),
        (dict(depth=[1, 2], optional=[0], block={}), 'several depths or `optional` blocks, not both'),
        (dict(depth=3, blocks=[{}, {}]), 'depth goes up to 3, but there are 2 blocks'),
        (
            dict(depth=2, optional=[2], block={}),
            r'stages\[0\].optional should list positions of blocks, \[0, 1\], but got \[2\]',
        ),
        (dict(block={}, blocks=[{}]), 'should have `block` or `blocks`, not both'),
        (dict(depth=[1, 2], blocks=[{}, None]), 'several depths or empty places'),
        (dict(blocks=[dict(k=1), None], optional=[1]), r'optional should list positions of blocks, \[0\]'),
        (dict(width=[1.0, float('inf')]), r'stages\[0\].width should offer numbers or words'),
        (dict(blocks=[3]), r'stages\[0\].blocks\[0\] should be an object'),
        (7, r'stages\[0\] should be an object'),
    ],
)
def test_a_malformed_space_is_refused(stage: object, message: str) -> None:
    with pytest.raises(SpaceError, match=message):
        SearchSpace.from_dict(dict(family='toy', stages=[stage]))


def test_other_mistakes() -> None:
    with pytest.raises(SpaceError, match='stages should be a list of at least one'):
        SearchSpace.from_dict(dict(family='toy', stages=[]))
    with pytest.raises(SpaceError, match='not a JSON file'):
        SearchSpace.from_json('{')
    with pytest.raises(SpaceError, match='prob should have the keys'):
        TINY.mutate(TINY.largest(), dict(width=0.5), np.random.default_rng(0))
    with pytest.raises(SpaceError, match='prob should be from 0 to 1, but got 2.0'):
        TINY.mutate(TINY.largest(), 2.0, np.random.default_rng(0))
    with pytest.raises(SpaceError, match='opened should be from 0 to 1, but got 2'):
        TINY.upper(2)
    with pytest.raises(SpaceError, match='index should be from 0'):
        TINY.arch_at(TINY.size())
    with pytest.raises(ArchError, match='has 30 entries, but got 2'):
        TINY.decode(np.array([0, 0]))
    with pytest.raises(ArchError, match=r'stages\[0\].embed_dim has no option number 3'):
        TINY.decode(np.full(30, 3))


# Random grammars.

_options = st.lists(st.integers(0, 20), min_size=1, max_size=3, unique=True).map(sorted)
_choices = st.dictionaries(st.sampled_from('abc'), _options, max_size=2)


@st.composite
def _stages(draw: st.DrawFn) -> dict:
    count = draw(st.integers(0, 3))
    stage = dict(draw(_choices), blocks=[draw(_choices) for _ in range(count)])
    if draw(st.booleans()):
        stage['optional'] = draw(st.lists(st.integers(0, count - 1), unique=True)) if count else []
    elif count:
        depths = draw(st.sets(st.integers(0, count - 1), max_size=2)) | {count}
        stage['depth'] = sorted(depths)
    return stage


@given(st.lists(_stages(), min_size=1, max_size=2), _choices, st.integers(0, 2**32 - 1))
@settings(max_examples=150, deadline=None)
def test_any_grammar_keeps_the_contract(stages: list[dict], choices: dict, seed: int) -> None:
    space = SearchSpace.from_dict(dict(family='toy', stages=stages, **choices))
    assert SearchSpace.from_dict(json.loads(space.to_json())) == space
    rng = np.random.default_rng(seed)
    a, b, c = space.sample(rng), space.sample(rng), space.arch_at(int(rng.integers(min(space.size(), 2**62))))
    for arch in (a, b, c, space.mutate(a, 0.5, rng), space.cross(a, b, rng), space.largest(), space.smallest()):
        assert arch in space
        assert space.decode(space.encode(arch)) == arch
        assert_needs(space, arch)
        assert Arch.from_json(arch.to_json()) == arch
        assert space.fix(arch).size() == 1
    if space.size() <= 300:
        assert len(set(space.iterate())) == space.size()
    parts = [space.upper(share) for share in (0.0, 0.3, 0.5, 1.0)]
    assert parts[0].size() == 1 and parts[0].largest() == space.largest()
    assert parts[3].size() == space.size()
    for smaller, larger in zip(parts, parts[1:]):
        assert smaller.size() <= larger.size()
        assert smaller.sample(rng) in larger and smaller.smallest() in space
