"""Checkpoints load with weights_only=True, hostile ones are refused, torchvision imports, bfloat16 detectors train."""

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
from mmengine.config import ConfigDict
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


@pytest.fixture
def mended():
    """mmcv and mmdet are imported and mended, as by the first step of a training in bfloat16."""
    import mmdet.models  # noqa: F401  (all that is mended)

    from vitnas_core.training import BFloat16OptimWrapper

    layer = torch.nn.Linear(1, 1)
    wrapper = BFloat16OptimWrapper(torch.optim.SGD(layer.parameters(), lr=0.1))
    with wrapper.optim_context(layer):
        pass


def mended_methods():
    for module, owner, name in compat._NO_BFLOAT16:
        yield getattr(getattr(sys.modules[module], owner), name)


def boxes(*corners):
    """Boxes of one image, that bfloat16 would round."""
    return torch.tensor([[0.0, *box] for box in corners])


def pool(features, rois):
    from mmcv.ops import roi_align

    output = roi_align(features, rois, 7, 0.25, 0, 'avg', True)
    return output, torch.autograd.grad(output.square().sum(), features)[0]


def test_bfloat16_is_pooled_in_float32(mended):
    features = torch.randn(1, 3, 40, 40, dtype=torch.bfloat16, requires_grad=True)
    rois = boxes((1.3, 2.7, 90.1, 100.9), (30.3, 8.8, 155.5, 60.2))
    output, gradient = pool(features, rois)
    expected, wanted = pool(features.detach().float().requires_grad_(), rois)
    assert (output.dtype, gradient.dtype) == (torch.float32, torch.bfloat16)
    assert torch.equal(output, expected) and torch.equal(gradient, wanted.bfloat16())


@pytest.mark.parametrize('kind', [torch.float16, torch.float32, torch.float64])
def test_other_types_are_pooled_as_before(mended, kind):
    from mmcv.ops.roi_align import RoIAlignFunction

    class Before(RoIAlignFunction):
        forward = staticmethod(RoIAlignFunction.forward.__wrapped__)

    features, rois = torch.randn(1, 3, 20, 20, dtype=kind), boxes((1.3, 2.7, 40.1, 60.9)).to(kind)
    output, expected = (f.apply(features, rois, 7, 0.25, 0, 'avg', True) for f in (RoIAlignFunction, Before))
    assert output.dtype == kind and torch.equal(output, expected)


def test_boxes_of_bfloat16_features_are_not_rounded(mended):
    from mmdet.models import RPNHead, SingleRoIExtractor

    rois = boxes((517.3, 514.6, 611.8, 639.1), (515.1, 520.9, 530.2, 540.4))
    assert not torch.equal(rois, rois.bfloat16().float())
    extractor = SingleRoIExtractor(dict(type='RoIAlign', output_size=7, sampling_ratio=0), 3, [4, 8])
    features = [torch.randn(1, 3, side, side, dtype=torch.bfloat16) for side in (160, 80)]
    pooled = extractor(features, rois)
    assert torch.equal(pooled, extractor([level.float() for level in features], rois))

    anchors = dict(type='AnchorGenerator', scales=[8], ratios=[1.0], strides=[4])
    suppression = ConfigDict(nms_pre=50, max_per_img=20, min_bbox_size=0, nms=dict(type='nms', iou_threshold=0.7))
    head = RPNHead(3, anchor_generator=anchors, test_cfg=suppression)
    scores, deltas = torch.randn(1, 1, 160, 160).bfloat16(), torch.randn(1, 4, 160, 160).bfloat16() / 10
    metas = [dict(img_shape=(640, 640))]
    found, expected = (
        head.predict_by_feat([s], [d], batch_img_metas=metas)[0]
        for s, d in ((scores, deltas), (scores.float(), deltas.float()))
    )
    assert found.bboxes.dtype == torch.float32 and torch.equal(found.bboxes, expected.bboxes)


def test_focal_loss_gets_float32(mended, monkeypatch):
    """Its kernels are for GPUs only: what they are given is looked at."""
    from mmcv.ops import focal_loss

    given = []
    kernels = {
        'sigmoid_focal_loss_forward': lambda x, target, weight, out, **_: given.append(x.dtype) or out.copy_(2 * x),
        'sigmoid_focal_loss_backward': lambda x, target, weight, out, **_: given.append(x.dtype) or out.fill_(2),
    }
    monkeypatch.setattr(focal_loss, 'ext_module', type('Kernels', (), {k: staticmethod(v) for k, v in kernels.items()}))
    logits = torch.randn(3, 4).bfloat16().requires_grad_()
    loss = focal_loss.sigmoid_focal_loss(logits, torch.tensor([0, 1, 2]), 2.0, 0.25, None, 'none')
    loss.sum().backward()
    assert given == [torch.float32, torch.float32] and loss.dtype == torch.float32
    assert torch.equal(logits.grad, torch.full((3, 4), 2.0, dtype=torch.bfloat16))


def test_mending_bfloat16_is_idempotent(mended):
    before = list(mended_methods())
    compat.bfloat16_in_float32()
    assert list(mended_methods()) == before and not any(hasattr(m.__wrapped__, 'no_bfloat16') for m in before)


def test_mending_bfloat16_imports_nothing():
    run(f"""{LOAD_COMPAT}
compat.bfloat16_in_float32()
assert not any(name.split('.')[0] in ('mmcv', 'mmdet') for name in sys.modules)
""")
