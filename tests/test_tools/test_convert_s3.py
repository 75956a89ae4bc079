"""The converter of S3's checkpoints: nothing is lost but buffers, networks are recognised, wrong files refused."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from mmengine.registry import MODELS
from safetensors.torch import save_file

from tools.converters import autoformer
from tools.converters import s3 as converter
from vitnas_core import zoo
from vitnas_core.auto import fill_auto
from vitnas_core.backbones import S3, AutoFormer
from vitnas_core.errors import CheckpointError
from vitnas_core.spaces import Arch

ROOT = Path(__file__).parents[2]
State = dict[str, torch.Tensor]


def small(windows: tuple[int, ...] = (4, 7, 3), ratio: float = 2.0, **change: Any) -> Arch:
    """An architecture of three stages, the second of two blocks, that is not in the zoo."""
    stages = []
    for width, heads, window, depth in zip((32, 96, 64), (1, 3, 2), windows, (1, 2, 1)):
        block = {**dict(num_heads=heads, mlp_ratio=ratio, window_size=window), **change}
        stages.append(dict(embed_dim=width, blocks=[block] * depth))
    return Arch.from_dict(dict(family='s3', stages=stages))


def network(arch: Arch | str, classes: int = 5, **settings: Any) -> State:
    """An ImageClassifier's random weights."""
    backbone = S3(arch=arch, **settings)
    state = {f'backbone.{name}': torch.randn(tensor.shape) for name, tensor in backbone.state_dict().items()}
    if classes:
        width = backbone.embed_dims[-1]
        state |= {'head.fc.weight': torch.randn(classes, width), 'head.fc.bias': torch.randn(classes)}
    return state


@pytest.fixture
def ours() -> State:
    return network(small())


@pytest.fixture
def official(ours: State) -> State:
    return converter.to_official(ours)


def with_buffers(official: State) -> State:
    """As the published files are: with what follows from the image size."""
    buffers = {}
    for name, tensor in official.items():
        if name.endswith('relative_position_bias_table'):
            tokens = ((int(len(tensor) ** 0.5) + 1) // 2) ** 2
            block = name.removesuffix('attn.relative_position_bias_table')
            buffers[f'{block}attn.relative_position_index'] = torch.zeros(tokens, tokens, dtype=torch.long)
            if '.blocks.1.' in name:
                buffers[f'{block}attn_mask'] = torch.zeros(4, tokens, tokens)
    assert buffers
    return {**official, **buffers}


def test_official_names_and_shapes() -> None:
    """FACTS, section 5: 13 tensors a block, 3 a merging."""
    official = converter.to_official(network('s3-t', 1000))
    assert len(official) == 12 * 13 + 3 * 3 + 8
    assert official['patch_embed.proj.weight'].shape == (96, 3, 4, 4)
    assert official['layers.2.blocks.5.attn.relative_position_bias_table'].shape == (729, 12)
    assert official['layers.3.blocks.1.attn.relative_position_bias_table'].shape == (169, 24)
    assert official['layers.1.blocks.0.attn.qkv.weight'].shape == (576, 192)
    assert official['layers.1.blocks.0.mlp.fc2.weight'].shape == (192, 768)
    assert official['layers.2.downsample.reduction.weight'].shape == (768, 1536)
    assert official['norm.weight'].shape == (768,) and official['head.weight'].shape == (1000, 768)
    assert sum(tensor.numel() for tensor in official.values()) == 28_328_674
    theirs = timm.create_model('swin_s3_tiny_224', pretrained=False).state_dict()
    shapes = {converter.timm_name(name): tensor.shape for name, tensor in official.items()}
    assert shapes == {name: tensor.shape for name, tensor in theirs.items()}


@pytest.mark.parametrize('classes', [5, 0])
@pytest.mark.parametrize(('back', 'timm_layout'), [(converter.to_official, False), (converter.to_timm, True)])
def test_round_trip_keeps_every_bit(back, timm_layout: bool, classes: int) -> None:
    ours = network(small(), classes)
    theirs = back(ours)
    assert converter.is_timm(theirs) == timm_layout
    assert converter.digest(converter.to_vitnas(theirs)) == converter.digest(ours)
    assert converter.digest(converter.to_vitnas(with_buffers(theirs))) == converter.digest(ours)
    assert converter.digest(back(converter.to_vitnas(theirs))) == converter.digest(theirs)
    assert all(tensor.is_contiguous() for tensor in (theirs | ours).values())


def test_types_are_kept(ours: State) -> None:
    ours = {name: tensor.bfloat16() for name, tensor in ours.items()}
    assert converter.digest(converter.to_vitnas(converter.to_timm(ours))) == converter.digest(ours)


def test_rows_of_qkv(ours: State, official: State) -> None:
    """Official rows go [3][heads][32], ours [heads][3][32]; the bias likewise."""
    for name in ('weight', 'bias'):
        theirs = official[f'layers.1.blocks.1.attn.qkv.{name}']
        mine = ours[f'backbone.stages.1.blocks.1.attn.qkv.{name}']
        for part in range(3):
            for head in range(3):
                for row in (0, 1, 31):
                    assert torch.equal(theirs[part * 96 + head * 32 + row], mine[head * 96 + part * 32 + row])


def test_inputs_of_a_merging(ours: State, official: State) -> None:
    """Official: groups of channels for (0, 0), (1, 0), (0, 1), (1, 1). Ours: four values a channel, row by row."""
    for name in ('norm.weight', 'norm.bias', 'reduction.weight'):
        theirs, mine = official[f'layers.1.downsample.{name}'], ours[f'backbone.stages.2.merging.{name}']
        for group, (row, column) in enumerate([(0, 0), (1, 0), (0, 1), (1, 1)]):
            for channel in (0, 1, 95):
                assert torch.equal(theirs[..., 96 * group + channel], mine[..., 4 * channel + 2 * row + column])


def test_entries_of_a_table(ours: State, official: State) -> None:
    """Official: row by row over the offsets from −6 to 6. Ours: offsets 0, −1, 1, −2, 2, …"""
    theirs = official['layers.1.blocks.0.attn.relative_position_bias_table']
    mine = ours['backbone.stages.1.blocks.0.attn.bias.tables.shared']
    order = [0, -1, 1, -2, 2, -3, 3, -4, 4, -5, 5, -6, 6]
    for y in range(-6, 7):
        for x in range(-6, 7):
            assert torch.equal(theirs[(y + 6) * 13 + x + 6], mine[:, order.index(y), order.index(x)])


def test_command_line_round_trip(tmp_path: Path, capsys) -> None:
    """As a user does it: a published file, with buffers and more beside the weights."""
    official = converter.to_official(network('s3-s', 3))
    torch.save(dict(model=with_buffers(official), epoch=299), tmp_path / 'S3-S.pth')
    command = [sys.executable, str(ROOT / 'tools/converters/s3.py'), 'S3-S.pth', 'ours.safetensors']
    out = subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path).stdout
    assert out.endswith("ours.safetensors\nbackbone: dict(type='vitnas.S3', arch='s3-s')\n")
    converter.main([str(tmp_path / 'ours.safetensors'), str(tmp_path / 'back.pth'), '--to-official'])
    assert capsys.readouterr().out.startswith(f'{len(official)} tensors, digest {converter.digest(official)[:16]}: ')
    assert converter.digest(converter.read(tmp_path / 'back.pth')) == converter.digest(official)
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
    assert converter.digest(again.state_dict()) == converter.digest(model.state_dict())


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
    save_file(converter.to_timm(ours), tmp_path / 'in.safetensors')
    converter.main([str(tmp_path / 'in.safetensors'), str(tmp_path / 'my.net.pth')])
    file = tmp_path / 'my.net.arch.json'
    line = capsys.readouterr().out.splitlines()[-1]
    assert line == f"backbone: dict(type='vitnas.S3', arch={str(file)!r}{printed})"
    assert Arch.from_dict(json.loads(file.read_text())) == arch
    backbone = MODELS.build(eval(line.removeprefix('backbone: ')))
    backbone.load_state_dict({k[9:]: v for k, v in ours.items() if k.startswith('backbone.')})
    for name, tensor in backbone.state_dict().items():  # tables of other sizes would have been interpolated
        assert torch.equal(tensor, ours[f'backbone.{name}'])


def test_every_entry_of_the_zoo_is_recognised(tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the image size that its tables are stored for; nothing but the shapes is looked at."""
    names = [name for name in zoo.arch_names() if zoo.entry(name).arch.family == 's3']
    monkeypatch.setattr(converter, 'digest', lambda state: 'none')
    for name in names:
        size = zoo.entry(name).input_size[0]
        with torch.device('meta'):
            state = converter.to_official(network(name, img_size=size))
            monkeypatch.setattr(converter, 'read', lambda path, state=state: state)
            converter.main([str(tmp_path / 'in.pth'), str(tmp_path / 'out.pth')])
        wanted = f"arch='{name}'" + (f', img_size={size}' if size != 224 else '')
        assert capsys.readouterr().out.endswith(f"\nbackbone: dict(type='vitnas.S3', {wanted})\n")
    assert len(names) >= 3


def test_a_fixed_network_with_tables_by_window(ours: State) -> None:
    named = {}
    for name, tensor in ours.items():
        named[name.replace('tables.shared', f'tables.{(tensor.shape[-1] + 1) // 2}')] = tensor
    S3(arch=small(), bias='per-window').load_state_dict(
        {k[9:]: v for k, v in named.items() if k.startswith('backbone.')}
    )
    assert converter.digest(converter.to_official(named)) == converter.digest(converter.to_official(ours))


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
    assert 'of the published layout: cls_token is none of its tensors' in refused(tmp_path, dict(model=state))
    mm = MODELS.build(dict(type='mmpretrain.SwinTransformer', arch='tiny')).state_dict()
    assert 'patch_embed.projection.weight is none of its tensors' in refused(tmp_path, mm)
    v2 = timm.create_model('swinv2_tiny_window8_256', pretrained=False).state_dict()
    assert "of timm's layout: layers.0.blocks.0.attn.logit_scale is none" in refused(tmp_path, v2)
    assert 'backbone.patch_embed.proj.weight is none of its tensors' in refused(tmp_path, ours)
    assert 'not a vitnas S3 checkpoint: patch_embed.proj.weight is none' in refused(tmp_path, official, '--to-timm')
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
    ('patch_embed.proj.weight', (32, 48), 'has shape (32, 48), which it has in no S3'),
    ('layers.0.blocks.0.attn.qkv.weight', (100, 32), 'has shape (100, 32), which it has in no S3'),
    ('layers.0.blocks.0.attn.qkv.bias', (), 'has shape (), which it has in no S3'),
    ('layers.0.blocks.0.attn.qkv.weight', (192, 32), 'is (192, 32); in an S3 of its other tensors it is (96, 32)'),
    ('layers.0.blocks.0.attn.proj.weight', (32, 64), 'is (32, 64); in an S3 of its other tensors it is (32, 32)'),
    ('layers.1.blocks.0.mlp.fc1.weight', (0, 96), 'mlp_ratio'),
    ('layers.2.blocks.0.attn.relative_position_bias_table', (16, 2), 'has shape (16, 2), which it has in no S3'),
    ('layers.2.blocks.0.attn.relative_position_bias_table', (24, 2), 'has shape (24, 2), which it has in no S3'),
    ('layers.2.blocks.0.attn.relative_position_bias_table', None, 'it lacks layers.2.blocks.0.attn.relative_position'),
    ('layers.1.downsample.norm.weight', (383,), 'has shape (383,), which it has in no S3'),
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
        timm_layout = {converter.timm_name(key): tensor for key, tensor in changed.items()}
        assert f'{converter.timm_name(name)} {message}' in refused(tmp_path, timm_layout)


def test_what_the_published_layouts_have_no_place_for(ours: State, tmp_path: Path) -> None:
    features = {**ours, 'backbone.norm0.weight': torch.ones(32)}
    assert 'backbone.norm0.weight has no place in the published layout' in refused(tmp_path, features, '--to-timm')
    table = 'backbone.stages.0.blocks.0.attn.bias.tables.'
    supernet = {**ours, f'{table}3': torch.zeros(1, 5, 5)}
    assert f'{table}3 has no place in the published layout' in refused(tmp_path, supernet, '--to-official')
    wide = network(small(num_heads=2))
    message = 'backbone.stages.0.blocks.0 has 2 heads, 64 channels, and is 32 wide; in the published layout both'
    assert message in refused(tmp_path, wide, '--to-official')
    short = {name: tensor for name, tensor in ours.items() if name != 'backbone.norm2.bias'}
    with pytest.raises(CheckpointError, match=r'backbone\.norm2\.bias is missing; in an S3 of its other tensors'):
        converter.to_official(short)


def test_command_line_mistakes(ours: State, tmp_path: Path, capsys) -> None:
    torch.save(ours, tmp_path / 'in.pth')
    for args, message in (
        ([tmp_path / 'in.pth', tmp_path / 'in.pth'], 'the target is the source'),
        ([tmp_path / 'in.pth', tmp_path / 'out.pth', '--to-timm', '--to-official'], 'not allowed with argument'),
    ):
        with pytest.raises(SystemExit):
            converter.main([str(arg) for arg in args])
        assert message in capsys.readouterr().err
