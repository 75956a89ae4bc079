"""``tools/export.py``: models and single backbones give the same outputs in both formats, at two sizes."""

import builtins
from pathlib import Path
from typing import Any

import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS

from tests.families import FAMILIES, Family
from tools import export
from vitnas_core.auto import fill_auto
from vitnas_core.errors import CheckpointError, VitnasError
from vitnas_core.model_configs import model_config

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
    model = MODELS.build(fill_auto(MODEL))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    torch.save(model.state_dict(), tmp_path / 'weights.pth')
    return tmp_path


def run(files: Path, out: str, *shape: int, more: tuple[str, ...] = (), **names: str) -> float:
    config, checkpoint = names.get('config', 'config.py'), names.get('checkpoint', 'weights.pth')
    return export.main(
        [str(files / config), str(files / checkpoint), '--out', str(files / out), '--shape', *map(str, shape), *more]
    )


def expected(files: Path, images: torch.Tensor) -> torch.Tensor:
    model = MODELS.build(fill_auto(MODEL)).eval()
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


def backbone_config(family: Family) -> dict[str, Any]:
    """Of the smallest architecture, with two outputs."""
    arch, name = family.space.smallest().to_dict(), family.cls.__name__
    return dict(family.settings, type=f'vitnas.{name}', arch=arch, out_indices=(0, -1))


def write_model(files: Path, text: str) -> torch.nn.Module:
    """Write a model's config and random weights; the model is returned."""
    (files / 'config.py').write_text(text)
    model = MODELS.build(model_config(Config.fromfile(files / 'config.py'))).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    torch.save(model.state_dict(), files / 'weights.pth')
    return model


def mask_rcnn(family: Family) -> str:
    """The stock config with a backbone of ours, made narrow."""
    backbone = backbone_config(family)
    channels = family.cls(**{k: v for k, v in backbone.items() if k != 'type'}).out_channels()
    part = dict(in_channels=8, num_classes=2)
    roi = dict(
        bbox_roi_extractor=dict(out_channels=8),
        bbox_head=dict(part, fc_out_channels=8),
        mask_roi_extractor=dict(out_channels=8),
        mask_head=dict(part, conv_out_channels=8),
    )
    neck = dict(in_channels=list(channels), out_channels=8)
    model = dict(neck=neck, rpn_head=dict(in_channels=8, feat_channels=8), roi_head=roi)
    model['backbone'] = dict(backbone, _delete_=True)
    return f"""_base_ = 'mmdet::mask_rcnn/mask-rcnn_r50_fpn_1x_coco.py'
custom_imports = dict(imports=['vitnas_core'])
model = {model!r}
"""


@pytest.mark.parametrize('name', ['s3', 'autoformer'])
def test_the_backbone_of_a_detector(files: Path, name: str) -> None:
    onnxruntime = pytest.importorskip('onnxruntime')
    pytest.importorskip('onnxscript')
    model = write_model(files, mask_rcnn(FAMILIES[name]))
    with pytest.raises(VitnasError, match=r'MaskRCNN does not run on images alone .*TypeError.*--backbone exports'):
        run(files, 'net.onnx', 40, 61)
    assert not (files / 'net.onnx').exists()
    assert run(files, 'net.onnx', 40, 61, more=('--backbone', '--batch-size', '2')) < 1e-3
    session = onnxruntime.InferenceSession(files / 'net.onnx')
    images = torch.randn(2, 3, 40, 61)
    with torch.no_grad():
        wanted = {f'feature_{i}': feature for i, feature in enumerate(model.backbone(images))}
    assert [output.name for output in session.get_outputs()] == list(wanted) == ['feature_0', 'feature_1']
    got = session.run(None, {'images': images.numpy()})
    sizes = sum(parameter.numel() for parameter in model.backbone.parameters())
    assert (files / 'net.onnx').stat().st_size < 4 * sizes + 2**20  # no weight of neck and heads is in the file
    for feature, one in zip(wanted.values(), got, strict=True):
        torch.testing.assert_close(torch.from_numpy(one), feature, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize('name', FAMILIES)
@pytest.mark.parametrize('suffix', export.FORMATS)
def test_the_backbone_of_every_family(files: Path, name: str, suffix: str) -> None:
    if suffix == '.onnx':
        pytest.importorskip('onnxscript')
    family = FAMILIES[name]
    head = dict(type='mmpretrain.LinearClsHead', num_classes=10, in_channels='auto')
    model = dict(type='mmpretrain.ImageClassifier', backbone=backbone_config(family), head=head)
    write_model(files, f'model = {model!r}')
    shape = (family.image, 2 * family.image - 3)
    assert run(files, f'net{suffix}', *shape, more=('--backbone',)) < 1e-3
    assert (files / f'net{suffix}').is_file()


def test_raw_outputs_of_a_detector_in_one_stage(files: Path) -> None:
    backbone = dict(backbone_config(FAMILIES['s3']), _delete_=True)
    neck = dict(in_channels=[24, 40], out_channels=8, start_level=0, num_outs=5)
    model = dict(backbone=backbone, neck=neck, bbox_head=dict(in_channels=8, feat_channels=8, num_classes=2))
    text = "_base_ = 'mmdet::retinanet/retinanet_r50_fpn_1x_coco.py'\ncustom_imports = dict(imports=['vitnas_core'])\n"
    write_model(files, f'{text}model = {model!r}')
    run(files, 'net.pt2', 40, 61)
    classes, boxes = torch.export.load(files / 'net.pt2').module()(torch.randn(1, 3, 40, 61))
    assert [tuple(one.shape[2:]) for one in classes] == [tuple(one.shape[2:]) for one in boxes] and len(classes) == 5


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
    with pytest.raises(VitnasError, match='a supernet is not exported'):
        run(files, 'net.pt2', 32, config='supernet.py', more=('--backbone',))
    with pytest.raises(CheckpointError, match='there is no checkpoint file'):
        run(files, 'net.pt2', 32, checkpoint='nowhere.pth')
    write_model(files, "model = dict(type='mmpretrain.ImageClassifier', backbone=dict(type='mmpretrain.LeNet5'))")
    with pytest.raises(VitnasError, match='should hold one elastic backbone'):
        run(files, 'net.pt2', 32, more=('--backbone',))
    for arguments, message in ((('net.zip', 32), 'should end in .onnx or .pt2'), (('net.pt2', 0), '--shape should be')):
        with pytest.raises(SystemExit):
            run(files, *arguments)
        assert message in capsys.readouterr().err
