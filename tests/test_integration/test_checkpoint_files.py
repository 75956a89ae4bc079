"""Checkpoints load with weights_only=True, and hostile ones are refused."""

import os
import pickle
import zipfile

import numpy as np
import pytest
import torch
from mmengine.logging import HistoryBuffer
from mmengine.runner import CheckpointLoader, load_checkpoint
from mmengine.runner.checkpoint import load_from_http

from vitnas_core import integration
from vitnas_core.errors import CheckpointError


def checkpoint():
    hub = {
        'log_scalars': {'train/loss': HistoryBuffer([0.5, 0.25], [1, 1])},
        'runtime_info': {'best': np.float64(0.75), 'n': np.int32(3)},
    }
    return {'state_dict': {'w': torch.ones(2)}, 'message_hub': hub, 'mask': np.array([True, False])}


class Call:
    """Pickles as a call of ``function``: what a hostile file would hold."""

    def __init__(self, function, *args):
        self.function, self.args = function, args

    def __reduce__(self):
        return self.function, self.args


def test_mmengine_checkpoint_loads_by_default(tmp_path):
    torch.save(checkpoint(), tmp_path / 'a.pth')
    loaded = torch.load(tmp_path / 'a.pth')
    scalars, info = loaded['message_hub']['log_scalars'], loaded['message_hub']['runtime_info']
    assert scalars['train/loss'].statistics('mean') == 0.375
    assert (info['best'], info['n'], info['n'].dtype) == (0.75, 3, np.int32)
    assert loaded['mask'].tolist() == [True, False]


@pytest.mark.parametrize('written_by', ['numpy.core.multiarray', 'numpy._core.multiarray'])
def test_checkpoint_of_either_numpy_loads(tmp_path, written_by):
    torch.save(checkpoint(), tmp_path / 'a.pth')
    with zipfile.ZipFile(tmp_path / 'a.pth') as old, zipfile.ZipFile(tmp_path / 'b.pth', 'w') as new:
        for name in old.namelist():
            data = old.read(name)
            if name.endswith('data.pkl'):
                for spelled in (b'cnumpy.core.multiarray\n', b'cnumpy._core.multiarray\n'):
                    data = data.replace(spelled, f'c{written_by}\n'.encode())
                assert written_by.encode() in data
            new.writestr(name, data)
    assert torch.load(tmp_path / 'b.pth')['message_hub']['runtime_info']['best'] == 0.75


def hostile(marker):
    command = f'touch {marker}'
    return {
        'os.system': Call(os.system, command),
        'eval': Call(eval, f'__import__("os").system({command!r})'),
        'getattr of another method': Call(getattr, HistoryBuffer, 'update'),
        'getattr of a dunder': Call(getattr, HistoryBuffer, '__init__'),
        'getattr of another class': Call(getattr, np.ndarray, 'tofile'),
        'getattr of an instance': Call(getattr, HistoryBuffer(), 'mean'),
        'getattr by a non-string': Call(getattr, HistoryBuffer, 1),
    }


def test_errors_that_stock_code_expects_stay(tmp_path):
    with pytest.raises(FileNotFoundError, match='nope.pth'):
        load_checkpoint(torch.nn.Linear(1, 1), str(tmp_path / 'nope.pth'))
    path = tmp_path / 'a.pth'
    torch.save(checkpoint(), path)
    nowhere = 'cuda:99'  # no machine has it
    with pytest.raises(RuntimeError, match='deserialize object on') as before:
        torch.load(path, map_location=nowhere)
    with pytest.raises(RuntimeError, match='deserialize object on') as found:
        CheckpointLoader.load_checkpoint(str(path), nowhere)
    assert (type(found.value), str(found.value)) == (type(before.value), str(before.value))
    path.write_bytes(path.read_bytes()[:-99])
    for where in ('cpu', nowhere, None):
        with pytest.raises(CheckpointError, match='is damaged, or no checkpoint'):
            CheckpointLoader.load_checkpoint(str(path), where)


@pytest.mark.parametrize('attack', list(hostile('')))
def test_hostile_checkpoint_is_refused_and_runs_nothing(tmp_path, attack):
    marker, path = tmp_path / 'executed', str(tmp_path / 'evil.pth')
    torch.save({'state_dict': {}, 'x': hostile(marker)[attack]}, path)
    with pytest.raises(pickle.UnpicklingError):
        torch.load(path)
    with pytest.raises(CheckpointError, match='nothing in it was executed'):
        load_checkpoint(torch.nn.Linear(1, 1), path)
    with pytest.raises(pickle.UnpicklingError):  # the file is in the cache already, nothing is fetched
        load_from_http('http://localhost/evil.pth', model_dir=str(tmp_path))
    assert not marker.exists()


def test_every_mmengine_loader_reads_weights_only(tmp_path, monkeypatch):
    """Whatever the scheme, mmengine ends in torch.load without weights_only, or in load_url, which passes True."""
    seen = []
    monkeypatch.setattr(torch, 'load', lambda *_, **options: seen.append(options.get('weights_only', True)) or {})
    for name in ('epoch_1.pth', 'resnet18-f37072fd.pth'):
        (tmp_path / name).touch()
    monkeypatch.setenv('TORCH_HOME', str(tmp_path))
    (tmp_path / 'hub').mkdir()
    (tmp_path / 'hub' / 'checkpoints').symlink_to(tmp_path)
    CheckpointLoader.load_checkpoint(str(tmp_path / 'epoch_1.pth'))
    CheckpointLoader.load_checkpoint('https://localhost/epoch_1.pth')
    CheckpointLoader.load_checkpoint('torchvision://resnet18')
    assert seen == [True, True, True]


def test_apply_is_idempotent():
    from mmengine.runner import checkpoint as module

    before, load_url = set(torch.serialization.get_safe_globals()), module.load_url
    integration.apply()
    assert set(torch.serialization.get_safe_globals()) == before
    assert module.load_url is load_url
    assert getattr not in before and not any(getattr in pair for pair in before if isinstance(pair, tuple))
