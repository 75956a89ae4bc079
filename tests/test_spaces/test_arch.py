"""Arch: immutable data that compares by value and round-trips through JSON."""

import copy
import dataclasses
import json
import pickle
import subprocess
import sys

import pytest

from vitnas_core import zoo
from vitnas_core.errors import ArchError
from vitnas_core.families.autoformer.arch import SCHEMA
from vitnas_core.spaces import Arch, Choices, Stage
from vitnas_core.spaces.records import Record

DATA = {
    'family': 'toy',
    'resolution': 224,
    'stages': [
        {'embed_dim': 192, 'blocks': [{'num_heads': 3, 'mlp_ratio': 3.5}, None, {'num_heads': 4, 'op': 'local'}]}
    ],
}


def test_json_round_trip_keeps_everything() -> None:
    arch = Arch.from_dict(DATA)
    assert arch.to_dict() == DATA
    assert Arch.from_json(arch.to_json()) == arch
    assert arch['resolution'] == 224
    assert arch.stages[0]['embed_dim'] == 192
    assert arch.stages[0].depth == 2


def test_one_network_has_one_spelling() -> None:
    padded = copy.deepcopy(DATA)
    padded['stages'][0]['blocks'] += [None, None]
    noted = {**DATA, 'name': 'mine', 'source': 'a search'}
    reordered = {'stages': DATA['stages'], 'resolution': 224.0, 'family': 'toy'}
    arch = Arch.from_dict(DATA)
    for other in map(Arch.from_dict, (padded, reordered, noted)):
        assert other == arch
        assert hash(other) == hash(arch)
        assert other.digest() == arch.digest()


def test_different_networks_differ() -> None:
    arch = Arch.from_dict(DATA)
    moved = copy.deepcopy(DATA)
    moved['stages'][0]['blocks'] = [DATA['stages'][0]['blocks'][0], DATA['stages'][0]['blocks'][2]]
    assert Arch.from_dict(moved) != arch
    assert Arch.from_dict(moved).digest() != arch.digest()


def test_it_is_immutable() -> None:
    arch = Arch.from_dict(DATA)
    with pytest.raises(AttributeError):
        arch.family = 'other'
    with pytest.raises(TypeError):
        arch.stages[0].choices['embed_dim'] = 1
    source = dict(k=3)
    choices = Choices(source)
    source['k'] = 5
    assert choices['k'] == 3


def test_pickle_and_deepcopy() -> None:
    arch = Arch.from_dict(DATA)
    assert pickle.loads(pickle.dumps(arch)) == arch
    assert copy.deepcopy(arch) == arch


def test_pickle_and_digest_hold_in_another_process(tmp_path) -> None:
    """Hashes of words differ between processes; equality and lookups after unpickling must not."""
    arch = Arch.from_dict(DATA)
    (tmp_path / 'arch.pkl').write_bytes(pickle.dumps(arch))
    code = (
        'import pickle, sys; from vitnas_core.spaces import Arch;'
        'a = pickle.load(open(sys.argv[1], "rb")); b = Arch.from_json(sys.argv[2]);'
        'assert a == b and a in {b}; print(a.digest())'
    )
    out = subprocess.run(
        [sys.executable, '-c', code, str(tmp_path / 'arch.pkl'), arch.to_json()],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert out.stdout.strip() == arch.digest()


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        (lambda d: d.pop('family'), 'family should be a word'),
        (lambda d: d.pop('stages'), 'stages should be a list'),
        (lambda d: d['stages'].__setitem__(0, 3), r'stages\[0\] should be an object, but got 3'),
        (lambda d: d['stages'][0].__setitem__('blocks', 'abc'), r'stages\[0\].blocks should be a list'),
        (lambda d: d['stages'][0]['blocks'].__setitem__(1, 7), r'stages\[0\].blocks\[1\] should be an object or null'),
        (lambda d: d['stages'][0].__setitem__('embed_dim', [1]), r'stages\[0\].embed_dim should be a number or a word'),
        (lambda d: d['stages'][0]['blocks'][0].__setitem__('k', float('nan')), r'stages\[0\].blocks\[0\].k should be'),
        (lambda d: d.__setitem__('resolution', True), 'resolution should be a number or a word, but got True'),
    ],
)
def test_a_malformed_file_is_answered_with_the_path(change, message) -> None:
    data = copy.deepcopy(DATA)
    change(data)
    with pytest.raises(ArchError, match=message):
        Arch.from_dict(data)


def test_text_that_is_not_json() -> None:
    with pytest.raises(ArchError, match='not a JSON file'):
        Arch.from_json('{"family": ')
    with pytest.raises(ArchError, match='should be an object'):
        Arch.from_json(json.dumps([1]))


def test_trailing_absent_blocks_are_dropped_by_the_stage() -> None:
    block = Choices(dict(k=3))
    assert Stage(Choices(), (None, block, None)).blocks == (None, block)
    assert Stage(Choices(), (None, None)).blocks == ()


def test_what_a_schema_has_read_stays_in_its_process() -> None:
    """It is no part of the data: not of a copy, a pickle or a dictionary of the fields."""
    arch = zoo.load_space('autoformer-tiny').largest()
    assert SCHEMA.read(arch) is SCHEMA.read(arch)
    assert arch.typed is not None and arch.typed[0] is SCHEMA
    for other in (pickle.loads(pickle.dumps(arch)), copy.deepcopy(arch), dataclasses.replace(arch)):
        assert other == arch and other.typed is None
        assert SCHEMA.read(other).stages == SCHEMA.read(arch).stages
    assert 'typed' not in dataclasses.asdict(arch)


def test_a_record_checks_by_check() -> None:
    with pytest.raises(TypeError, match='Own should have `check` or properties; a record runs no `__post_init__`'):

        class Own(Record):
            def __post_init__(self) -> None:
                pass
