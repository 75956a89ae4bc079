"""The command that converts AutoFormer's published checkpoints: its files, output and errors."""

import argparse
import subprocess
import sys
from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import load_file, save_file

from tests.test_families.test_autoformer_weights import published
from tools.converters import autoformer as converter
from vitnas_core.backbones import AutoFormer
from vitnas_core.backbones.foreign import digest, read
from vitnas_core.families.autoformer.weights import to_official, to_vitnas

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope='module')
def official() -> dict[str, torch.Tensor]:
    return published()


def test_command_line_round_trip(official: dict[str, torch.Tensor], tmp_path: Path) -> None:
    """As a user does it, with a file as published: optimizer, epoch and the command line inside."""
    torch.save(
        dict(model=official, optimizer={}, lr_scheduler={}, epoch=499, scaler={}, args=argparse.Namespace(gp=True)),
        tmp_path / 'supernet-tiny.pth',
    )
    script = [sys.executable, str(ROOT / 'tools/converters/autoformer.py')]

    def run(*args: object) -> str:
        return subprocess.run([*script, *map(str, args)], check=True, capture_output=True, text=True, cwd=ROOT).stdout

    out = run(tmp_path / 'supernet-tiny.pth', tmp_path / 'ours.safetensors')
    assert "space='autoformer-tiny', embed_dims=256, official=True" in out
    back = run(tmp_path / 'ours.safetensors', tmp_path / 'back.pth', '--to-official', '--space', 'autoformer-tiny')
    assert digest(official)[:16] in back
    assert digest(read(tmp_path / 'back.pth')) == digest(official)

    backbone = AutoFormer(space='autoformer-tiny', embed_dims=256, official=True)
    state = load_file(tmp_path / 'ours.safetensors')
    backbone.load_state_dict({k[9:]: v for k, v in state.items() if k.startswith('backbone.')})


def test_the_part_of_one_architecture(official: dict[str, torch.Tensor], tmp_path: Path, capsys) -> None:
    """What a config loads with ``init_cfg=dict(type='Pretrained', …)`` into the published network."""
    save_file(official, tmp_path / 'supernet.safetensors')
    converter.main([str(tmp_path / 'supernet.safetensors'), str(tmp_path / 'tiny.pth'), '--arch', 'autoformer-tiny'])
    assert "dict(type='vitnas.AutoFormer', arch='autoformer-tiny')" in capsys.readouterr().out
    supernet = AutoFormer(space='autoformer-tiny', embed_dims=256, official=True).eval()
    state = to_vitnas(official)
    supernet.load_state_dict({k[9:]: v for k, v in state.items() if k.startswith('backbone.')})
    supernet.set_arch('autoformer-tiny')
    pretrained = dict(type='Pretrained', checkpoint=str(tmp_path / 'tiny.pth'), prefix='backbone.')
    fixed = AutoFormer(arch='autoformer-tiny', init_cfg=pretrained).eval()
    fixed.init_weights()
    x = torch.randn(1, 3, 224, 224)
    assert torch.equal(fixed(x)[0], supernet(x)[0][:, :192])
    head = read(tmp_path / 'tiny.pth')['head.fc.weight']
    assert torch.equal(head, official['head.weight'][:, :192])
    as_timm = timm.create_model('vitnas_autoformer_tiny', checkpoint_path=str(tmp_path / 'tiny.pth')).eval()
    assert torch.equal(as_timm.forward_features(x), fixed(x)[0])
    assert torch.equal(as_timm.get_classifier().weight, head)
    with pytest.raises(SystemExit):
        converter.main([str(tmp_path / 'tiny.pth'), str(tmp_path / 'tiny.pth')])
    assert 'the target is the source' in capsys.readouterr().err


def test_other_image_patch_and_reach_are_said(capsys, tmp_path: Path) -> None:
    backbone = AutoFormer(space='autoformer-tiny', img_size=64, patch_size=8, reach=7)
    state = {f'backbone.{k}': v for k, v in backbone.state_dict().items()}
    save_file(to_official(state), tmp_path / 'in.safetensors')
    converter.main([str(tmp_path / 'in.safetensors'), str(tmp_path / 'out.safetensors')])
    out = capsys.readouterr().out
    assert "space='autoformer-tiny', embed_dims=240, official=True, patch_size=8, img_size=64, reach=7)" in out


def test_wrong_files_are_refused(official: dict[str, torch.Tensor], tmp_path: Path) -> None:
    def convert(state: object, *args: str) -> str:
        torch.save(state, tmp_path / 'in.pth')
        with pytest.raises(SystemExit) as err:
            converter.main([str(tmp_path / 'in.pth'), str(tmp_path / 'out.pth'), *args])
        assert not (tmp_path / 'out.pth').exists()
        return str(err.value)

    assert 'layers.0.blocks is not one of its tensors' in convert({'layers.0.blocks': torch.zeros(1)})
    few = {k: v for k, v in official.items() if not k.startswith('blocks.')}
    assert 'it lacks blocks.0.attn.qkv.weight' in convert(dict(model=few))
    where = 'in a supernet of autoformer-tiny it is'
    for name, tensor, message in (
        ('blocks.3.fc1.weight', None, f'is missing; {where} (1024, 256)'),
        (
            'pos_embed',
            torch.zeros(1, 150, 256),
            f'is (1, 150, 256); {where} (1, 145, 256)',
        ),
        ('blocks.2.attn.qkv.bias', torch.zeros(5), f'is (5,); {where} (768,)'),
        (
            'blocks.2.fc1.weight',
            torch.zeros(768, 256),
            f'is (768, 256); {where} (1024, 256)',
        ),
    ):
        damaged = {k: v for k, v in {**official, name: tensor}.items() if v is not None}
        assert f'{name} {message}' in convert(damaged)
    assert 'it lacks cls_token' in convert({**official, 'cls_token': torch.tensor(1.0)})
    (tmp_path / 'other.json').write_text('{"family": "toy", "stages": [{"width": [1]}]}')
    assert 'which does not match an AutoFormer space' in convert(official, '--space', str(tmp_path / 'other.json'))
    assert 'SpaceError' in convert(official, '--space', 'nope')
    assert 'neither a file nor an architecture of the zoo' in convert(official, '--arch', 'nope')
    shallow = {k: v for k, v in official.items() if not k.startswith('blocks.13.')}
    assert 'width 256, depth 13, 4 heads, which does not match' in convert(shallow)
    assert 'which does not match autoformer-small (width from 448' in convert(official, '--space', 'autoformer-small')
    assert 'holds no state dict' in convert([1, 2])
    assert 'not a vitnas AutoFormer checkpoint: cls_token' in convert(official, '--to-official')
    odd = {**official, 'blocks.0.attn.qkv.weight': torch.zeros(100, 256)}
    assert 'should have 3 × 64 rows per head, but has shape (100, 256)' in convert(odd)
    with pytest.raises(SystemExit, match='there is no file'):
        converter.main([str(tmp_path / 'none.pth'), str(tmp_path / 'out.pth')])


def test_conditional_positions_have_no_place_in_the_published_layout(tmp_path: Path) -> None:
    backbone = AutoFormer(space='autoformer-tiny', position='conditional', official=True)
    state = {f'backbone.{name}': tensor for name, tensor in backbone.state_dict().items()}
    save_file(state, tmp_path / 'in.safetensors')
    with pytest.raises(SystemExit, match=r'^CheckpointError: backbone\.peg\.\w+ belongs to conditional positions'):
        converter.main([str(tmp_path / 'in.safetensors'), str(tmp_path / 'out.pth'), '--to-official'])
    assert not (tmp_path / 'out.pth').exists()
