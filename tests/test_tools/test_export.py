"""``tools/export.py``: both formats, at two sizes, compute what the model computes."""

import builtins
from pathlib import Path
from typing import Any

import pytest
import torch
from mmengine.registry import MODELS

from tests.families import FAMILIES
from tools import export
from vitnas_core.errors import CheckpointError, VitnasError
from vitnas_core.models import fill_channels

FAMILY = FAMILIES['autoformer']
MODEL: dict[str, Any] = dict(
    type='mmpretrain.ImageClassifier',
    backbone=dict(
        type='vitnas.AutoFormer', arch=FAMILY.space.smallest().to_dict(), out_type='avg_featmap', **FAMILY.settings
    ),
    head=dict(type='mmpretrain.LinearClsHead', num_classes=10, in_channels='auto'),
)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with a fixed network's config and weights."""
    (tmp_path / 'config.py').write_text(f'model = {MODEL!r}\n')
    model = MODELS.build(fill_channels(MODEL))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    torch.save(model.state_dict(), tmp_path / 'weights.pth')
    return tmp_path


def run(files: Path, out: str, *shape: int, **names: str) -> float:
    config, checkpoint = names.get('config', 'config.py'), names.get('checkpoint', 'weights.pth')
    return export.main(
        [str(files / config), str(files / checkpoint), '--out', str(files / out), '--shape', *map(str, shape)]
    )


def expected(files: Path, images: torch.Tensor) -> torch.Tensor:
    model = MODELS.build(fill_channels(MODEL)).eval()
    model.load_state_dict(torch.load(files / 'weights.pth', weights_only=True))
    with torch.no_grad():
        return model(images, mode='tensor')


@pytest.mark.parametrize('shape', [(32,), (40, 61)], ids=['square', 'not square'])
def test_onnx(files: Path, shape: tuple[int, ...], capsys: pytest.CaptureFixture) -> None:
    onnxruntime = pytest.importorskip('onnxruntime')
    pytest.importorskip('onnxscript')
    assert run(files, 'net.onnx', *shape) < 1e-4
    assert 'largest difference to torch' in capsys.readouterr().out
    session = onnxruntime.InferenceSession(files / 'net.onnx')
    images = torch.randn(1, 3, shape[0], shape[-1])
    (got,) = session.run(None, {'images': images.numpy()})
    torch.testing.assert_close(torch.from_numpy(got), expected(files, images), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize('shape', [(32,), (40, 61)], ids=['square', 'not square'])
def test_torch_export(files: Path, shape: tuple[int, ...]) -> None:
    assert run(files, 'net.pt2', *shape) < 1e-4
    images = torch.randn(1, 3, shape[0], shape[-1])
    got = torch.export.load(files / 'net.pt2').module()(images)
    torch.testing.assert_close(got, expected(files, images), rtol=1e-4, atol=1e-4)


def test_a_wrong_export_is_not_written(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(network: torch.nn.Module, images: torch.Tensor) -> Any:
        return b'', lambda inputs: [network(inputs) + 1]

    monkeypatch.setitem(export.FORMATS, '.pt2', wrong)
    with pytest.raises(VitnasError, match='the exported network differs from the model by .*; nothing was written'):
        run(files, 'net.pt2', 32)
    assert not (files / 'net.pt2').exists()


def test_packages_that_are_missing(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == 'onnxruntime':
            raise ImportError('No module named onnxruntime', name=name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, '__import__', without)
    with pytest.raises(
        VitnasError, match=r'ONNX export needs onnxruntime, which is not installed: pip install "vitnas'
    ):
        run(files, 'net.onnx', 32)


def test_mistakes(files: Path, capsys: pytest.CaptureFixture) -> None:
    space = dict(MODEL['backbone'], space=FAMILY.space.to_dict())
    del space['arch']
    (files / 'supernet.py').write_text(f'model = {dict(MODEL, backbone=space)!r}')
    with pytest.raises(VitnasError, match='a supernet is not exported: tools/extract_subnet.py makes a fixed network'):
        run(files, 'net.pt2', 32, config='supernet.py')
    with pytest.raises(CheckpointError, match='there is no checkpoint file'):
        run(files, 'net.pt2', 32, checkpoint='nowhere.pth')
    for arguments, message in ((('net.zip', 32), 'should end in .onnx or .pt2'), (('net.pt2', 0), '--shape should be')):
        with pytest.raises(SystemExit):
            run(files, *arguments)
        assert message in capsys.readouterr().err
