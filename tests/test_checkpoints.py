"""Weight files: every format loads, damaged and hostile ones are refused, nothing is executed."""

from __future__ import annotations

import os
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mmengine.runner.checkpoint import load_checkpoint
from safetensors.torch import save_file
from torch import nn

from tools import train
from vitnas_core.checkpoints import load_file, load_weights
from vitnas_core.errors import CheckpointError


class Hostile:
    """What a pickle can do when it is loaded."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return os.system, (f'touch {self.mark}',)


@pytest.fixture
def model() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))


@pytest.mark.parametrize('kind', ['checkpoint', 'bare', 'safetensors'])
def test_every_format_loads_also_through_mmengine(model: nn.Module, tmp_path: Path, kind: str) -> None:
    weights = {name: torch.randn_like(t) if t.is_floating_point() else t + 5 for name, t in model.state_dict().items()}
    path = tmp_path / ('w.safetensors' if kind == 'safetensors' else 'w.pth')
    if kind == 'safetensors':
        save_file(weights, path)
    else:
        torch.save(dict(state_dict=weights, meta=dict(epoch=1)) if kind == 'checkpoint' else weights, path)
    load_weights(model, path)
    assert all(torch.equal(model.state_dict()[name], tensor) for name, tensor in weights.items())
    other = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    load_checkpoint(other, str(path), strict=True)
    assert all(torch.equal(other.state_dict()[name], tensor) for name, tensor in weights.items())


def hostile_files(folder: Path, mark: Path) -> dict[str, Path]:
    files = {name: folder / f'{name}.pth' for name in ('zip', 'legacy', 'bytes')}
    torch.save(dict(state_dict=dict(weight=Hostile(mark))), files['zip'])
    torch.save(dict(state_dict=dict(weight=Hostile(mark))), files['legacy'], _use_new_zipfile_serialization=False)
    files['bytes'].write_bytes(pickle.dumps(Hostile(mark)))
    return files


@pytest.mark.parametrize('kind', ['zip', 'legacy', 'bytes'])
def test_a_hostile_file_is_refused_and_nothing_runs(tmp_path: Path, kind: str) -> None:
    mark = tmp_path / 'executed'
    path = hostile_files(tmp_path, mark)[kind]
    with pytest.raises(CheckpointError, match='(nothing in it was executed|is damaged, or no checkpoint)'):
        load_file(path)
    with pytest.raises(CheckpointError):
        load_checkpoint(nn.Linear(1, 1), str(path))
    assert not mark.exists()


def test_hostile_through_the_command(tmp_path: Path) -> None:
    mark = tmp_path / 'executed'
    path = hostile_files(tmp_path, mark)['zip']
    config = 'projects/classification/configs/autoformer/autoformer-micro_retrain_20e_digits.py'
    root = Path(__file__).parents[1]
    with pytest.raises(CheckpointError, match='nothing in it was executed'):
        train.main([str(root / config), '--work-dir', str(tmp_path / 'w'), '--cfg-options', f'load_from={path}'])
    assert not mark.exists()


@pytest.mark.parametrize('suffix', ['.pth', '.safetensors'])
def test_damaged_files(model: nn.Module, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f'w{suffix}'
    whole = tmp_path / f'whole{suffix}'
    save_file(model.state_dict(), whole) if suffix == '.safetensors' else torch.save(model.state_dict(), whole)
    data = whole.read_bytes()
    pieces = [b'', b'not a checkpoint', data[: len(data) // 2], data[:-20], data[20:], bytes(len(data))]
    for piece in pieces:
        path.write_bytes(piece)
        with pytest.raises(CheckpointError, match=rf'w{suffix} is damaged, or no checkpoint'):
            load_file(path)


def test_a_zip_that_is_no_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / 'w.pth'
    with zipfile.ZipFile(path, 'w') as archive:
        archive.writestr('readme.txt', 'hello')
    with pytest.raises(CheckpointError, match='is damaged, or no checkpoint'):
        load_file(path)


@pytest.mark.parametrize('content', [[1, 2], {}, dict(state_dict=3), dict(epoch=4), dict(state_dict=dict(a=1))])
def test_no_weights(tmp_path: Path, content: object) -> None:
    torch.save(content, tmp_path / 'w.pth')
    with pytest.raises(CheckpointError, match='should hold a dict of weights|holds no weights'):
        load_file(tmp_path / 'w.pth')


def test_what_does_not_fit_leaves_the_model(model: nn.Module, tmp_path: Path) -> None:
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    weights = {**before, '0.weight': torch.ones(4, 2), 'more': torch.ones(1)}
    del weights['0.bias']
    torch.save(weights, tmp_path / 'w.pth')
    words = (
        r'has no 0.bias; has more, which the model lacks; has 0.weight of shape \(4, 2\), but the model has \(4, 3\)'
    )
    with pytest.raises(CheckpointError, match=words):
        load_weights(model, tmp_path / 'w.pth')
    assert all(torch.equal(model.state_dict()[name], tensor) for name, tensor in before.items())


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match='there is no checkpoint file .*nope.pth') as caught:
        load_file(tmp_path / 'nope.pth')
    assert isinstance(caught.value, FileNotFoundError)


@given(st.integers(0, 2**32 - 1), st.booleans())
@settings(max_examples=60, deadline=None)
def test_any_damage_is_a_checkpoint_error_or_harmless(
    tmp_path_factory: pytest.TempPathFactory, seed: int, new: bool
) -> None:
    path, rng = tmp_path_factory.mktemp('damaged') / 'w.pth', np.random.default_rng(seed)
    torch.save(dict(state_dict=nn.Linear(3, 4).state_dict()), path, _use_new_zipfile_serialization=new)
    data = bytearray(path.read_bytes())
    for place in rng.integers(len(data), size=rng.integers(1, 6)):
        data[place] = rng.integers(256)
    path.write_bytes(data)
    try:
        weights = load_file(path)['state_dict']
    except CheckpointError as err:
        assert 'w.pth' in str(err)
    else:
        assert all(isinstance(tensor, torch.Tensor) for tensor in weights.values())
