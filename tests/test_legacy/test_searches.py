"""Searches of an earlier version resume from their journals and give the same candidates."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from mmengine.config import Config
from mmengine.runner import Runner

from vitnas_core.spaces import Arch

from .common import folders, place, read, unpack

FOLDERS = folders('searches')
GROWING = [
    name for name, folder in FOLDERS.items() if 'generations' in read(folder / 'search.json')['config']['train_cfg']
]
every_search = pytest.mark.parametrize('name', FOLDERS)


def search(tmp_path: Path, name: str, journal: bytes, **changes: Any) -> Path:
    """Run a search in a work dir that holds a journal; return the work dir."""
    folder = FOLDERS[name]
    version, asked = folder.parents[1], read(folder / 'search.json')
    packed = next(version.glob(f'*/{asked["supernet"]}/*.pth.xz'))
    run = tmp_path / 'run'
    run.mkdir(exist_ok=True)
    (run / 'history.jsonl').write_bytes(journal)
    paths = dict(
        WORK_DIR=run,
        SUPERNET=unpack(packed, tmp_path),
        LATENCY_TABLE=version / 'latency' / f'{asked["supernet"]}.json',
    )
    config = Config(place(asked['config'], **paths))
    config.train_cfg.update(changes)
    config.experiment_name = f'{tmp_path.name}_{len(changes)}'
    Runner.from_cfg(config).train()
    return run


def rows(journal: bytes) -> list[list[Any]]:
    """What a journal says of its candidates; not what they cost, and not how long they took."""
    found = [json.loads(line) for line in journal.splitlines()[1:]]
    found.sort(key=lambda c: c['id'])
    return [
        [c['id'], c['generation'], Arch.from_dict(c['arch']).digest(), c['parents'], c['share'], c['score'],
         c['complete']]
        for c in found
    ]  # fmt: skip


def check_results(run: Path, folder: Path) -> None:
    """The journal and the files beside it say the same as then."""
    expected = read(folder / 'expected.json')['candidates']
    found = rows((run / 'history.jsonl').read_bytes())
    assert [row[:5] for row in found] == [row[:5] for row in expected]
    for now, then in zip(found, expected):
        assert now[5:] == pytest.approx(then[5:])
    for file in ('best_arch.json', 'pareto.json'):
        assert read(run / file) == read(folder / file)


@every_search
def test_a_search_that_was_killed_in_a_round_ends_as_it_did(tmp_path: Path, name: str) -> None:
    journal = (FOLDERS[name] / 'history.jsonl').read_bytes()
    cut = read(FOLDERS[name] / 'expected.json')['cut_in_a_round']
    assert not journal[:cut].endswith(b'\n')
    run = search(tmp_path, name, journal[:cut])
    check_results(run, FOLDERS[name])
    whole = cut - len(journal[:cut].rpartition(b'\n')[2])
    assert (run / 'history.jsonl').read_bytes()[:whole] == journal[:whole]  # with the seconds of then


@every_search
def test_a_finished_search_scores_nothing(tmp_path: Path, name: str) -> None:
    journal = (FOLDERS[name] / 'history.jsonl').read_bytes()
    run = search(tmp_path, name, journal)
    assert (run / 'history.jsonl').read_bytes() == journal
    check_results(run, FOLDERS[name])


@pytest.mark.parametrize('name', GROWING)
def test_a_finished_search_gets_more_generations(tmp_path: Path, name: str) -> None:
    expected = read(FOLDERS[name] / 'expected.json')
    journal = (FOLDERS[name] / 'history.jsonl').read_bytes()[: expected['cut_after_a_round']]
    run = search(tmp_path, name, journal, generations=expected['rounds_before'])
    assert (run / 'history.jsonl').read_bytes() == journal
    shutil.rmtree(run)
    run = search(tmp_path, name, journal)
    assert (run / 'history.jsonl').read_bytes().startswith(journal)
    check_results(run, FOLDERS[name])
