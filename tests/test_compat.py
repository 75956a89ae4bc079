"""Checkpoints load with weights_only=True, hostile ones are refused, torchvision imports and is never disturbed."""

import importlib.util
import os
import pickle
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from mmengine.logging import HistoryBuffer
from mmengine.runner import CheckpointLoader, load_checkpoint
from mmengine.runner.checkpoint import load_from_http

from vitnas_core import compat
from vitnas_core.errors import CheckpointError

COMPAT = Path(compat.__file__)
# compat.py alone, so that nothing else of the package imports torchvision.
LOAD_COMPAT = f"""
import importlib.util, sys
spec = importlib.util.spec_from_file_location('compat', {str(COMPAT)!r})
compat = importlib.util.module_from_spec(spec)
spec.loader.exec_module(compat)
"""


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
    compat.apply()
    assert set(torch.serialization.get_safe_globals()) == before
    assert module.load_url is load_url
    assert getattr not in before and not any(getattr in pair for pair in before if isinstance(pair, tuple))


def run(code, folder=None):
    path = os.pathsep.join(filter(None, [folder and str(folder), os.environ.get('PYTHONPATH')]))
    environment = {**os.environ, 'PYTHONPATH': path}
    done = subprocess.run([sys.executable, '-c', code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_installed_torchvision_imports_afterwards():
    """Whichever build is installed: not imported by compat, then usable by timm."""
    run(f"""{LOAD_COMPAT}
declared = compat.ensure_torchvision()
assert compat.ensure_torchvision() is declared
assert 'torchvision' not in sys.modules
import timm, torch, torchvision.transforms.functional as F
from torchvision.extension import _has_ops
assert _has_ops() is not declared
assert F.resize(torch.zeros(1, 3, 8, 8), [4, 4]).shape == (1, 3, 4, 4)
assert compat.ensure_torchvision() is declared
""")


def fake_torchvision(folder, code):
    package = folder / 'torchvision'
    package.mkdir()
    (package / '__init__.py').write_text(code)
    return package


UNTOUCHED = f"""{LOAD_COMPAT}
import torch
assert compat.ensure_torchvision() is False
assert not compat._torchvision_schemas and not hasattr(torch.ops.torchvision, 'qnms')
"""


def test_working_torchvision_is_not_touched(tmp_path):
    """One without a library to load, whose own operator would clash with a declared one."""
    fake_torchvision(
        tmp_path,
        'import torch\nprint("imported")\nlib = torch.library.Library("torchvision", "DEF")\n'
        'lib.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")\nfrom . import part\n',
    )
    (tmp_path / 'torchvision' / 'part.py').write_text('')
    output = run(
        UNTOUCHED + "import torchvision\nassert 'torchvision.part' in sys.modules and torchvision.lib\n"
        'torch.ops.torchvision.nms\n',
        tmp_path,
    )
    assert output.split() == ['imported']


def test_torchvision_that_loads_its_library_is_not_even_imported(tmp_path):
    library = importlib.util.find_spec('_ctypes').origin
    if not library or not os.path.isfile(library):
        pytest.skip('this Python has no shared library to stand in for the compiled operators')
    package = fake_torchvision(tmp_path, 'print("imported")')
    shutil.copy(library, package / '_C.so')
    assert run(UNTOUCHED + "assert 'torchvision' not in sys.modules", tmp_path) == ''


def test_other_failures_of_torchvision_are_not_hidden(tmp_path):
    fake_torchvision(tmp_path, 'raise RuntimeError("compiled with different CUDA major versions")')
    run(
        f"""{LOAD_COMPAT}
try:
    compat.ensure_torchvision()
except RuntimeError as err:
    assert 'CUDA major' in str(err)
else:
    raise AssertionError
""",
        tmp_path,
    )
