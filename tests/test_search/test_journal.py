"""The journal: nothing is lost, nothing is read twice, and the journal of another search is refused."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.families import SPACES
from vitnas_core.errors import VitnasError
from vitnas_core.search import Candidate, Journal

SPACE = {'stages': [{'embed_dim': [1, 2]}]}
HEADER = {'version': 1, 'space': SPACE, 'checkpoint': 'abc', 'constraint': {'macs': (None, 5)}}


def made(number: int) -> Candidate:
    arch = SPACES['autoformer-test'].sample(np.random.default_rng(number))
    return Candidate(number, number // 3, arch, {'macs': 5, 'params': 7}, 1.0, (number - 1,) * (number > 0), 0.5)


def filled(folder: Path, count: int) -> list[Candidate]:
    journal, candidates = Journal(folder, HEADER), [made(i) for i in range(count)]
    for candidate in candidates:
        journal.append(candidate)
    return candidates


numbers = st.floats(allow_nan=False, allow_infinity=False)
any_candidate = st.builds(
    lambda space, seed, **rest: Candidate(arch=SPACES[space].sample(np.random.default_rng(seed)), **rest),
    space=st.sampled_from(sorted(SPACES)),
    seed=st.integers(0, 99),
    id=st.integers(0, 10**6),
    generation=st.integers(0, 100),
    cost=st.dictionaries(st.sampled_from(['macs', 'params', 'latency']), numbers),
    score=numbers,
    parents=st.lists(st.integers(0, 99), max_size=2).map(tuple),
    seconds=st.floats(0, 1e6),
    fraction=st.floats(0, 1, exclude_min=True),
    complete=st.booleans(),
)


@settings(deadline=None, max_examples=50)
@given(st.lists(any_candidate, unique_by=lambda c: c.id, max_size=5))
def test_round_trip_of_every_family(candidates: list[Candidate]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(folder, HEADER)
        for candidate in candidates:
            journal.append(candidate)
        assert list(Journal(folder, HEADER).open().values()) == candidates


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 3000))
def test_a_file_cut_anywhere_keeps_every_whole_line(cut: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        candidates, path = filled(Path(folder), 4), Path(folder, 'history.jsonl')
        content = path.read_bytes()
        path.write_bytes(content[:cut])
        whole = max(content[:cut].count(b'\n') - 1, 0)
        journal = Journal(folder, HEADER)
        assert list(journal.open().values()) == candidates[:whole]
        for candidate in candidates[whole:]:  # and goes on
            journal.append(candidate)
        assert path.read_bytes() == content


@pytest.mark.parametrize(
    ('change', 'shown'),
    [
        ({'space': {'stages': [{'embed_dim': [1, 2, 3]}]}}, r'space.stages\[0\].embed_dim: \[1, 2\] → \[1, 2, 3\]'),
        ({'checkpoint': 'def'}, 'checkpoint: "abc" → "def"'),
        ({'constraint': {'macs': (None, 6)}}, r'constraint.macs: \[null, 5\] → \[null, 6\]'),
        ({'constraint': {}}, r'constraint.macs: \[null, 5\] → null'),
    ],
)
def test_another_search_is_refused_with_the_difference(tmp_path: Path, change: dict, shown: str) -> None:
    filled(tmp_path, 3)
    with (tmp_path / 'history.jsonl').open('a') as file:
        file.write('{"id": 3')  # even a torn line stays then
    before = (tmp_path / 'history.jsonl').read_bytes()
    with pytest.raises(VitnasError, match=shown + r' \(journal → now\).*another --work-dir'):
        Journal(tmp_path, {**HEADER, **change}).open()
    assert (tmp_path / 'history.jsonl').read_bytes() == before


def test_damage_inside_is_named_by_its_line(tmp_path: Path) -> None:
    filled(tmp_path, 3)
    path = tmp_path / 'history.jsonl'
    lines = path.read_text().splitlines()
    path.write_text('\n'.join([*lines[:2], 'oops', *lines[3:]]) + '\n')
    with pytest.raises(VitnasError, match='line 3 of .*history.jsonl is not JSON'):
        Journal(tmp_path, HEADER).open()
    path.write_text('\n'.join([*lines[:2], '{"id": 1}', *lines[3:]]) + '\n')
    with pytest.raises(VitnasError, match="line 3 of .*: a candidate is malformed: has no 'generation'"):
        Journal(tmp_path, HEADER).open()


def test_part_files_of_any_number_of_ranks_are_merged_once(tmp_path: Path) -> None:
    candidates = [made(i) for i in range(6)]
    for rank in range(3):
        journal = Journal(tmp_path, HEADER, rank)
        for candidate in candidates[rank::3]:
            journal.append(candidate)
    with (tmp_path / 'history.rank1.jsonl').open('a') as file:
        file.write('{"torn')
    assert sorted(Journal(tmp_path, HEADER).open()) == list(range(6))
    assert [path.name for path in tmp_path.iterdir()] == ['history.jsonl']
    assert Journal(tmp_path, HEADER).open() == {c.id: c for c in candidates}


def test_a_kill_between_merging_and_removing_a_part_file(tmp_path: Path) -> None:
    candidates = [made(i) for i in range(4)]
    for number, rank in enumerate((0, 1, 0, 1)):
        Journal(tmp_path, HEADER, rank).append(candidates[number])
    part = (tmp_path / 'history.rank1.jsonl').read_bytes()
    Journal(tmp_path, HEADER).open()
    (tmp_path / 'history.rank1.jsonl').write_bytes(part)  # as if it had not been removed yet
    Journal(tmp_path, HEADER).open()
    lines = (tmp_path / 'history.jsonl').read_text().splitlines()
    assert sorted(json.loads(line)['id'] for line in lines[1:]) == [0, 1, 2, 3]


def test_a_part_file_of_another_search_is_refused(tmp_path: Path) -> None:
    Journal(tmp_path, {**HEADER, 'checkpoint': 'old'}, rank=1).append(made(0))
    with pytest.raises(VitnasError, match='history.rank1.jsonl is the journal of another search'):
        Journal(tmp_path, HEADER).open()
    assert (tmp_path / 'history.rank1.jsonl').exists()
