"""Two processes give exactly the result of one."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import pytest
import torch

from .common import config, history, save_supernet, search, without_seconds
from .test_loops import LOOPS

SMALL = {
    'evolution': dict(LOOPS['evolution'], population=7, parents=3, generations=3, mutations=4, crossovers=3),
    'halving': dict(LOOPS['halving'], num_candidates=9),
    'predictor': dict(LOOPS['predictor'], num_samples=9, num_final=5),
    'nsga2': dict(LOOPS['nsga2'], population=7, parents=3, generations=3),
}


def work(folder: Path, name: str, rank: int, world: int) -> None:
    os.environ['LOCAL_RANK'] = str(rank)
    torch.set_num_threads(1)
    torch.distributed.init_process_group('gloo', init_method=f'file://{folder}/meet', rank=rank, world_size=world)
    wrapper = dict(type='MMDistributedDataParallel', device_ids=None, broadcast_buffers=False)
    search(config(folder / 'two', SMALL[name], launcher='pytorch', model_wrapper_cfg=wrapper))


@pytest.mark.parametrize('name', SMALL)
def test_two_processes_give_the_result_of_one(tmp_path: Path, name: str) -> None:
    save_supernet(tmp_path)
    context = multiprocessing.get_context('fork')
    processes = [context.Process(target=work, args=(tmp_path, name, rank, 2)) for rank in range(2)]
    for process in processes:
        process.start()
    alone = search(config(tmp_path / 'one', SMALL[name]))
    for process in processes:
        process.join(300)
        assert process.exitcode == 0
    one, two = history(tmp_path / 'one', alone), history(tmp_path / 'two', alone)
    assert without_seconds(one) == without_seconds(two)
    assert len({c.score for c in one}) > 1  # a real score, not a constant
    files = ['best_arch.json', 'pareto.json'] + ['predictor.json', 'predictor.png'] * (name == 'predictor')
    for file in files:
        assert (tmp_path / 'one' / file).read_bytes() == (tmp_path / 'two' / file).read_bytes()
    assert not list((tmp_path / 'two').glob('history.rank*'))
