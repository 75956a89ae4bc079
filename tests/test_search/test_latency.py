"""A latency table limits a search exactly, and infeasible limits are refused at once."""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path

import pytest

from tests.families import BACKBONES, FAMILIES
from tests.test_search.common import build, config, history, noise, search
from vitnas_core.errors import InfeasibleError, VitnasError
from vitnas_core.latency import LatencyTable
from vitnas_core.latency.table import block_keys, stage_keys
from vitnas_core.spaces import Arch, SearchSpace
from vitnas_core.spaces.arch import Value

LOOP = dict(type='vitnas.EvolutionSearchLoop', population=20, parents=5, generations=3, mutations=10, crossovers=10)


def made_up_table(space: SearchSpace) -> LatencyTable:
    """Blocks cost a millisecond a unit of everything that they choose; stages ten."""
    blocks, stages = {}, {}
    for arch in space.iterate():
        for _, _, key in block_keys(arch):
            blocks[key] = 1e-3 * sum(map(_units, key.block.values()))
        for key in stage_keys(arch):
            stages[key] = 1e-2
    return LatencyTable(space.family, dict(device='none'), 5e-3, stages, blocks)


def _units(value: Value) -> float:
    """A number, or the letters of a kind of block."""
    return float(len(value) if isinstance(value, str) else value)


def seconds(arch: Arch) -> float:
    of_blocks = sum(_units(v) for stage in arch.stages for block in stage.blocks if block for v in block.values())
    return 5e-3 + 1e-2 * len(arch.stages) + 1e-3 * of_blocks


@pytest.mark.parametrize('family', BACKBONES)
def test_every_candidate_meets_the_measured_limit(tmp_path: Path, family: str) -> None:
    (tmp_path / 'latency.json').write_text(made_up_table(FAMILIES[family].space).to_json())
    limit = seconds(FAMILIES[family].space.smallest()) * 1.4
    asked = {**LOOP, 'latency_table': str(tmp_path / 'latency.json'), 'constraint': dict(latency=(None, limit))}
    loop = search(config(tmp_path / 'a', asked, family), noise)
    found = history(tmp_path / 'a', loop)
    assert len(found) > 20
    for candidate in found:
        assert (
            candidate.cost['latency'] == pytest.approx(seconds(candidate.arch)) and candidate.cost['latency'] <= limit
        )
    best = json.loads((tmp_path / 'a/best_arch.json').read_text())
    assert best == max(found, key=lambda c: c.score).arch.to_dict()


def test_an_infeasible_latency_is_answered_in_under_a_second(tmp_path: Path) -> None:
    space = FAMILIES['autoformer'].space
    (tmp_path / 'latency.json').write_text(made_up_table(space).to_json())
    asked = {**LOOP, 'latency_table': str(tmp_path / 'latency.json'), 'constraint': dict(latency=(None, 1e-3))}
    runner = build(config(tmp_path / 'a', asked))
    start = time.perf_counter()
    with pytest.raises(InfeasibleError, match='has latency <= 0.001 s; the reachable range is 0.02 s to 0.03 s'):
        runner.train()
    assert time.perf_counter() - start < 1


@pytest.mark.parametrize(
    ('setting', 'family', 'words'),
    [
        (
            dict(input_size=[64, 64]),
            'autoformer',
            r'was measured for autoformer at \[64, 64\]; the search is of autoformer at',
        ),
        (dict(input_size=[32, 32]), 'other', 'was measured for other at'),
    ],
)
def test_a_table_of_something_else_is_refused(tmp_path: Path, setting: dict, family: str, words: str) -> None:
    table = made_up_table(FAMILIES['autoformer'].space)
    table = dataclasses.replace(table, setting=setting, family=family)
    (tmp_path / 'latency.json').write_text(table.to_json())
    asked = {**LOOP, 'latency_table': str(tmp_path / 'latency.json'), 'constraint': dict(latency=(None, 1.0))}
    with pytest.raises(VitnasError, match=words):
        build(config(tmp_path / 'a', asked)).train()
