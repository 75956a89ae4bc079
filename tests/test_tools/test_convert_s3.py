"""The command that converts S3's checkpoints: its files, output and errors."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import timm
import torch
from mmengine.registry import MODELS
from safetensors.torch import save_file

from tests.test_families.test_s3_weights import network, small, with_buffers
from tools.converters import s3 as converter
from vitnas_core.auto import fill_auto
from vitnas_core.backbones import AutoFormer
from vitnas_core.backbones.foreign import digest, read
from vitnas_core.families.autoformer import weights as autoformer
from vitnas_core.families.s3.weights import timm_name, to_official, to_timm
from vitnas_core.spaces import Arch

ROOT = Path(__file__).parents[2]
State = dict[str, torch.Tensor]


@pytest.fixture
def ours() -> State:
    return network(small())


@pytest.fixture
def official(ours: State) -> State:
    return to_official(ours)


def test_command_line_round_trip(tmp_path: Path, capsys) -> None:
    """As a user does it: a published file, with buffers and more beside the weights."""
    official = to_official(network('s3-s', 3))
    torch.save(dict(model=with_buffers(official), epoch=299), tmp_path / 'S3-S.pth')
    command = [sys.executable, str(ROOT / 'tools/converters/s3.py'), 'S3-S.pth', 'ours.safetensors']
    out = subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path).stdout
    assert out.endswith("ours.safetensors\nbackbone: dict(type='vitnas.S3', arch='s3-s')\n")
    converter.main([str(tmp_path / 'ours.safetensors'), str(tmp_path / 'back.pth'), '--to-official'])
    assert capsys.readouterr().out.startswith(f'{len(official)} tensors, digest {digest(official)[:16]}: ')
    assert digest(read(tmp_path / 'back.pth')) == digest(official)
    assert {path.name for path in tmp_path.iterdir()} == {'S3-S.pth', 'ours.safetensors', 'back.pth'}


def test_a_file_of_timm_runs_in_mmpretrain_and_timm_reads_what_comes_back(tmp_path: Path, capsys) -> None:
    torch.manual_seed(0)
    model = timm.create_model('swin_s3_tiny_224', pretrained=False, num_classes=7).eval()
    save_file(model.state_dict(), tmp_path / 'timm.safetensors')
    converter.main([str(tmp_path / 'timm.safetensors'), str(tmp_path / 'ours.pth')])
    assert "dict(type='vitnas.S3', arch='s3-t')" in capsys.readouterr().out
    checkpoint = dict(type='Pretrained', checkpoint=str(tmp_path / 'ours.pth'))
    config = dict(
        type='mmpretrain.ImageClassifier',
        backbone=dict(type='vitnas.S3', arch='s3-t'),
        neck=dict(type='mmpretrain.GlobalAveragePooling'),
        head=dict(type='mmpretrain.LinearClsHead', num_classes=7, in_channels='auto'),
        init_cfg=checkpoint,
    )
    ours = MODELS.build(fill_auto(config)).eval()
    ours.init_weights()
    x = torch.randn(1, 3, 224, 224)
    with torch.no_grad():
        torch.testing.assert_close(ours(x, mode='tensor'), model(x), rtol=1e-5, atol=1e-5)
    converter.main([str(tmp_path / 'ours.pth'), str(tmp_path / 'back.pth'), '--to-timm'])
    again = timm.create_model('swin_s3_tiny_224', checkpoint_path=str(tmp_path / 'back.pth'), num_classes=7)
    assert digest(again.state_dict()) == digest(model.state_dict())


@pytest.mark.parametrize(
    ('arch', 'built', 'printed'),
    [
        (small(), {}, ''),
        (small(ratio=3.7), {}, ''),
        (small(), dict(patch_size=8), ', patch_size=8'),
        (small((4, 7, 15)), dict(img_size=240), ', img_size=240'),
        (small((24, 7, 3)), dict(img_size=60, patch_size=2), ', patch_size=2'),
    ],
)
def test_other_architectures_are_written_beside_the_target(
    arch: Arch, built: dict, printed: str, tmp_path: Path, capsys
) -> None:
    """Also those whose tables are for a larger image or other patches than the default."""
    ours = network(arch, **built)
    save_file(to_timm(ours), tmp_path / 'in.safetensors')
    converter.main([str(tmp_path / 'in.safetensors'), str(tmp_path / 'my.net.pth')])
    file = tmp_path / 'my.net.arch.json'
    line = capsys.readouterr().out.splitlines()[-1]
    assert line == f"backbone: dict(type='vitnas.S3', arch={str(file)!r}{printed})"
    assert Arch.from_dict(json.loads(file.read_text())) == arch
    backbone = MODELS.build(eval(line.removeprefix('backbone: ')))
    backbone.load_state_dict({k[9:]: v for k, v in ours.items() if k.startswith('backbone.')})
    for name, tensor in backbone.state_dict().items():  # tables of other sizes would have been interpolated
        assert torch.equal(tensor, ours[f'backbone.{name}'])


def refused(tmp_path: Path, state: object, *args: str) -> str:
    torch.save(state, tmp_path / 'in.pth')
    with pytest.raises(SystemExit) as err:
        converter.main([str(tmp_path / 'in.pth'), str(tmp_path / 'out.pth'), *args])
    assert [path.name for path in tmp_path.iterdir()] == ['in.pth']
    message = str(err.value)
    assert message.startswith('CheckpointError: ') and '\n' not in message and message.endswith('in.pth)')
    return message


def test_files_of_other_networks_are_refused(official: State, ours: State, tmp_path: Path) -> None:
    """AutoFormer's, mmpretrain's Swin, Swin v2, ours in the wrong direction, and a part of a network."""
    other = AutoFormer(arch='autoformer-tiny').state_dict()
    state = autoformer.to_official({f'backbone.{name}': tensor for name, tensor in other.items()})
    assert 'of the published layout: cls_token is not one of its tensors' in refused(tmp_path, dict(model=state))
    mm = MODELS.build(dict(type='mmpretrain.SwinTransformer', arch='tiny')).state_dict()
    assert 'patch_embed.projection.weight is not one of its tensors' in refused(tmp_path, mm)
    v2 = timm.create_model('swinv2_tiny_window8_256', pretrained=False).state_dict()
    assert "of timm's layout: layers.0.blocks.0.attn.logit_scale is not one" in refused(tmp_path, v2)
    assert 'backbone.patch_embed.proj.weight is not one of its tensors' in refused(tmp_path, ours)
    assert 'not a vitnas S3 checkpoint: patch_embed.proj.weight is not one' in refused(tmp_path, official, '--to-timm')
    head = {name: tensor for name, tensor in official.items() if name.startswith('head')}
    assert 'it lacks layers.0.blocks.0.attn.qkv.weight' in refused(tmp_path, head)
    assert 'holds no state dict' in refused(tmp_path, [1, 2])
    with pytest.raises(SystemExit, match='there is no file'):
        converter.main([str(tmp_path / 'none.pth'), str(tmp_path / 'out.pth')])


DAMAGES = [
    ('layers.1.blocks.1.mlp.fc2.bias', None, 'is missing; in an S3 of its other tensors it is (96,)'),
    ('layers.1.blocks.1.mlp.fc2.bias', (7,), 'is (7,); in an S3 of its other tensors it is (96,)'),
    ('patch_embed.norm.weight', None, 'is missing; in an S3 of its other tensors it is (32,)'),
    ('patch_embed.proj.weight', (32, 1, 4, 4), 'is (32, 1, 4, 4); in an S3 of its other tensors it is (32, 3, 4, 4)'),
    ('patch_embed.proj.weight', (32, 48), 'has shape (32, 48), which no S3'),
    ('layers.0.blocks.0.attn.qkv.weight', (100, 32), 'has shape (100, 32), which no S3'),
    ('layers.0.blocks.0.attn.qkv.bias', (), 'has shape (), which no S3'),
    ('layers.0.blocks.0.attn.qkv.weight', (192, 32), 'is (192, 32); in an S3 of its other tensors it is (96, 32)'),
    ('layers.0.blocks.0.attn.proj.weight', (32, 64), 'is (32, 64); in an S3 of its other tensors it is (32, 32)'),
    ('layers.1.blocks.0.mlp.fc1.weight', (0, 96), 'mlp_ratio'),
    ('layers.2.blocks.0.attn.relative_position_bias_table', (16, 2), 'has shape (16, 2), which no S3'),
    ('layers.2.blocks.0.attn.relative_position_bias_table', (24, 2), 'has shape (24, 2), which no S3'),
    ('layers.2.blocks.0.attn.relative_position_bias_table', (), 'has shape (), which no S3'),
    ('layers.2.blocks.0.attn.relative_position_bias_table', None, 'it lacks layers.2.blocks.0.attn.relative_position'),
    ('layers.1.downsample.norm.weight', (383,), 'has shape (383,), which no S3'),
    ('layers.1.downsample.reduction.weight', (64, 128), 'is (64, 128); in an S3 of its other tensors it is (64, 384)'),
    ('head.bias', None, 'is missing; in an S3 of its other tensors it is (5,)'),
    ('head.weight', (5, 32), 'is (5, 32); in an S3 of its other tensors it is (5, 64)'),
    ('layers.7.blocks.0.norm1.weight', (8,), 'it lacks layers.3.blocks.0.attn.qkv.weight'),
]


@pytest.mark.parametrize(('name', 'shape', 'message'), DAMAGES)
def test_damaged_files_are_refused_in_their_own_names(
    official: State, tmp_path: Path, name: str, shape: tuple[int, ...] | None, message: str
) -> None:
    changed = {**official, name: torch.zeros(shape)} if shape is not None else dict(official)
    if shape is None:
        del changed[name]
    answer = refused(tmp_path, changed)
    assert message in answer
    if message.startswith(('is', 'has')):
        assert f'CheckpointError: {name} {message}' in answer
        timm_layout = {timm_name(key): tensor for key, tensor in changed.items()}
        assert f'{timm_name(name)} {message}' in refused(tmp_path, timm_layout)


def test_what_the_published_layouts_have_no_place_for(ours: State, tmp_path: Path) -> None:
    features = {**ours, 'backbone.norm0.weight': torch.ones(32)}
    assert 'backbone.norm0.weight has no place in the published layout' in refused(tmp_path, features, '--to-timm')
    table = 'backbone.stages.0.blocks.0.attn.bias.tables.'
    supernet = {**ours, f'{table}3': torch.zeros(1, 5, 5)}
    assert f'{table}3 has no place in the published layout' in refused(tmp_path, supernet, '--to-official')
    wide = network(small(num_heads=2))
    message = 'backbone.stages.0.blocks.0 has 2 heads, 64 channels, and is 32 wide; in the published layout both'
    assert message in refused(tmp_path, wide, '--to-official')


def test_command_line_mistakes(ours: State, tmp_path: Path, capsys) -> None:
    torch.save(ours, tmp_path / 'in.pth')
    for args, message in (
        ([tmp_path / 'in.pth', tmp_path / 'in.pth'], 'the target is the source'),
        ([tmp_path / 'in.pth', tmp_path / 'out.pth', '--to-timm', '--to-official'], 'not allowed with argument'),
    ):
        with pytest.raises(SystemExit):
            converter.main([str(arg) for arg in args])
        assert message in capsys.readouterr().err
