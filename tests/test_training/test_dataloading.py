"""Keyed samples: each position once for any number of ranks; a start in the middle loads no earlier samples."""

from __future__ import annotations

import pickle
import random

import numpy as np
import pytest
import torch
from mmengine.dataset import DefaultSampler
from torch.utils.data import BatchSampler, DataLoader, Dataset

from vitnas_core.training import dataloading
from vitnas_core.training.dataloading import KeyedBatchSampler, SeededDataset, SeededLoader


class Noise(Dataset):
    """Each sample draws from all three global generators."""

    metainfo = dict(classes=('a', 'b'))

    def __init__(self) -> None:
        self.loaded: list[int] = []

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> tuple:
        self.loaded.append(index)
        return index, random.random(), float(np.random.rand()), float(torch.rand(1))


def loader(workers: int = 0, batch_size: int = 4) -> DataLoader:
    data = Noise()
    return SeededLoader(
        DataLoader(
            data,
            batch_size=batch_size,
            num_workers=workers,
            sampler=DefaultSampler(data, seed=0),
            collate_fn=list,
            drop_last=True,
        )
    )


def samples(made: DataLoader, seed: int = 1, data_pass: int = 0, first: int = 0) -> list[tuple]:
    made.batch_sampler.start(seed, data_pass, first)
    return [sample for batch in made for sample in batch]


def test_batch_size_and_workers_do_not_matter_but_seed_and_pass_do() -> None:
    reference = samples(loader())
    assert len(set(reference)) == 20
    assert samples(loader(batch_size=5)) == samples(loader(workers=2)) == reference
    again = samples(loader(), data_pass=1)
    assert {s[0] for s in again} == {s[0] for s in reference}
    assert {s[1:] for s in again}.isdisjoint({s[1:] for s in reference})
    other = samples(loader(), seed=2)
    assert {s[0] for s in other} == {s[0] for s in reference} and other != reference


def test_starting_later_loads_nothing_before() -> None:
    made = loader()
    assert samples(made, first=3) == samples(loader())[12:]
    assert len(made.dataset.dataset.loaded) == 8


@pytest.mark.parametrize('world', [2, 4])
def test_ranks_share_the_positions_of_one(monkeypatch: pytest.MonkeyPatch, world: int) -> None:
    def keys(rank: int, world: int, batch_size: int) -> list:
        monkeypatch.setattr(dataloading, 'get_rank', lambda: rank)
        monkeypatch.setattr(dataloading, 'get_world_size', lambda: world)
        order = np.random.default_rng(0).permutation(20)[rank::world].tolist()
        sampler = KeyedBatchSampler(BatchSampler(order, batch_size, drop_last=True))
        return [key for batch in sampler for key in batch]

    one = {(key.number, key.position) for key in keys(0, 1, 4)}
    shared = [(key.number, key.position) for rank in range(world) for key in keys(rank, world, 5 if world == 4 else 2)]
    assert sorted(shared) == sorted(one)


def test_the_wrapper_passes_as_the_dataset() -> None:
    data = SeededDataset(Noise())
    assert data.metainfo == Noise.metainfo and len(data) == 20 and data[3][0] == 3
    assert len(pickle.loads(pickle.dumps(data))) == 20
    with pytest.raises(AttributeError, match='nope'):
        data.nope  # noqa: B018
