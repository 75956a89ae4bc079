"""Two real processes train as one does: same architectures, losses and weights, one exchange of gradients per step."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
CASES = ('uniform', 'distilled', 'focus', 'shared', 'accumulated', 'projected', 'projected-accumulated')

Seen = list[dict[str, dict[str, Any]]]


def launch(work_dir: Path, processes: int, *cases: str) -> Seen:
    """Run ddp_run.py with a global batch of 16; what each rank saw."""
    command = [sys.executable, '-m', 'torch.distributed.run', '--standalone', f'--nproc_per_node={processes}']
    script = [str(Path(__file__).with_name('ddp_run.py')), str(work_dir), str(16 // processes), *cases]
    environment = {**os.environ, 'PYTHONPATH': str(ROOT), 'OMP_NUM_THREADS': '1'}
    done = subprocess.run([*command, *script], env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads((work_dir / f'rank{rank}.json').read_text()) for rank in range(processes)]


@pytest.fixture(scope='module')
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp('distributed')


@pytest.fixture(scope='module')
def one(folder: Path) -> dict[str, dict[str, Any]]:
    return launch(folder / 'one', 1, *CASES)[0]


@pytest.fixture(scope='module')
def two(folder: Path) -> Seen:
    return launch(folder / 'two', 2, *CASES)


@pytest.mark.parametrize('case', CASES)
def test_two_processes_equal_one(one: dict, two: Seen, case: str) -> None:
    alone, ranks = one[case], [rank[case] for rank in two]
    assert alone['archs'] == ranks[0]['archs'] == ranks[1]['archs'] and len(set(alone['archs'])) > 3
    together = np.mean([rank['losses'] for rank in ranks], axis=0)  # each rank logs the mean over its own images
    np.testing.assert_allclose(together, alone['losses'], rtol=2e-4)
    assert ranks[0]['weights'] == ranks[1]['weights']
    assert ranks[0]['learned'] == ranks[1]['learned']  # to the last bit: or they would draw other architectures
    for name, total in alone['learned'].items():
        np.testing.assert_allclose(ranks[0]['learned'][name], total, rtol=1e-6, atol=1e-9, err_msg=name)
    for name, total in alone['weights'].items():
        np.testing.assert_allclose(ranks[0]['weights'][name], total, rtol=1e-3, atol=2e-6, err_msg=name)


@pytest.mark.parametrize('case', CASES)
def test_gradients_are_exchanged_once_a_step(two: Seen, case: str) -> None:
    # Of 10 steps accumulated by threes the last one is alone.
    updates = [0, 0, 1, 1, 1, 2, 2, 2, 3, 4] if 'accumulated' in case else [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
    exchanges = np.array(two[0][case]['exchanges'])
    if 'projected' in case:  # the supernet's gradients, and the subnets'
        assert not (exchanges % 2).any()
        exchanges //= 2
    buckets = exchanges[-1] / updates[-1]
    assert buckets in (1, 2)  # torch splits a small model into one or two buckets
    assert (exchanges == buckets * np.array(updates)).all()


@pytest.mark.parametrize('case', ['projected', 'projected-accumulated'])
def test_conflicts_are_those_of_the_averaged_gradients(one: dict, two: Seen, case: str) -> None:
    alone, together = one[case]['conflicts'], two[0][case]['conflicts']
    assert [row[:2] for row in alone] == [row[:2] for row in together]
    assert len({row[0] for row in alone}) == 3 and len({row[1] for row in alone}) > 10
    np.testing.assert_allclose([row[2] for row in together], [row[2] for row in alone], atol=2e-3)
    assert min(row[2] for row in alone) < 0  # or nothing was projected
    assert together == two[1][case]['conflicts']  # one file


@pytest.mark.parametrize('case', ['accumulated', 'projected-accumulated'])
def test_a_resumed_distributed_training_is_the_same(two: Seen, folder: Path, case: str) -> None:
    """Stopped after 4 of 10 steps, in the middle of an accumulation by threes."""
    work_dir = folder / 'two' / case
    (work_dir / 'last_checkpoint').write_text(str(work_dir / 'iter_4.pth'))
    resumed = launch(folder / 'two', 2, case)
    for before, after in zip(two, resumed):
        assert after[case]['archs'] == before[case]['archs'][4:]
        assert after[case]['weights'] == before[case]['weights']
    assert resumed[0][case]['losses'] == two[0][case]['losses']
    assert resumed[0][case]['conflicts'] == two[0][case]['conflicts']
