"""The converter of ViT-ResNAS's checkpoints: nothing is lost, networks are recognised, wrong files refused."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tools.converters import common
from tools.converters import vit_resnas as converter
from vitnas_core.backbones import ViTRes
from vitnas_core.backbones.pretrained import load_pretrained
from vitnas_core.errors import CheckpointError
from vitnas_core.spaces import Arch

ROOT = Path(__file__).parents[2]
HEAD_DIMS = (8, 12, 8)
State = dict[str, torch.Tensor]


def small(absent: bool = False) -> Arch:
    """An architecture of three stages that is not in the zoo."""
    stages: list[dict[str, Any]] = []
    for width, head_dim, depth in zip((16, 32, 40), HEAD_DIMS, (2, 3, 1)):
        blocks: list[dict[str, int] | None] = [dict(num_heads=2, hidden_dim=24), dict(num_heads=1, hidden_dim=16)] * 2
        stages.append(dict(embed_dim=width, head_dim=head_dim, blocks=blocks[:depth]))
    if absent:
        stages[1]['blocks'][1] = None
    return Arch.from_dict(dict(family='vit_res', stages=stages))


def network(arch: Arch | str, classes: int = 5, **settings: Any) -> State:
    """An ImageClassifier's random weights."""
    backbone = ViTRes(arch=arch, **settings)
    state = {
        f'backbone.{name}': torch.randn(tensor.shape) if tensor.is_floating_point() else torch.full_like(tensor, 7)
        for name, tensor in backbone.state_dict().items()
    }
    for head in ('head.fc', 'head.token_fc') if classes else ():
        width = backbone.embed_dims[-1]
        state |= {f'{head}.weight': torch.randn(classes, width), f'{head}.bias': torch.randn(classes)}
    return state


@pytest.mark.parametrize('classes', [5, 0])
@pytest.mark.parametrize('settings', [{}, dict(img_size=112)])
@pytest.mark.parametrize('absent', [False, True])
def test_round_trip_keeps_every_bit(settings: dict[str, Any], classes: int, absent: bool) -> None:
    ours = network(small(absent), classes, **settings)
    official = converter.to_official(ours, HEAD_DIMS)
    again = converter.to_vitnas(official, HEAD_DIMS)
    assert again.keys() == ours.keys() and all(torch.equal(again[name], ours[name]) for name in ours)
    assert converter.find_arch(again, HEAD_DIMS) == small(absent)
    assert converter.find_settings(again) == settings
    assert common.digest(converter.to_official(again, HEAD_DIMS)) == common.digest(official)


def test_official_names() -> None:
    official = converter.to_official(network(small(), 5), HEAD_DIMS)
    blocks = sorted({int(name.split('.')[1]) for name in official if name.startswith('blocks.')})
    assert blocks == list(range(8))  # 2 blocks, a reduction, 3 blocks, a reduction, 1 block
    assert official['blocks.2.patch_reduce.weight'].shape == (32, 16, 3, 3)
    assert official['blocks.6.token_transform.weight'].shape == (40, 32)
    assert official['blocks.7.attn.qkv.weight'].shape == (48, 40)
    assert official['tokens'].shape == (1, 1, 16) and official['patch_head.weight'].shape == (5, 40)


def test_rows_of_qkv_change_places() -> None:
    ours = network(small(), 0)
    official = converter.to_official(ours, HEAD_DIMS)
    mine, theirs = ours['backbone.stages.0.blocks.0.attn.qkv.weight'], official['blocks.0.attn.qkv.weight']
    for part in range(3):  # q, k and v of two heads
        for head in range(2):
            rows = slice(8 * (3 * head + part), 8 * (3 * head + part) + 8)
            assert torch.equal(mine[rows], theirs[8 * (2 * part + head) :][:8])


def test_the_command(tmp_path: Path) -> None:
    ours = network('vit-res-tiny', 3)
    torch.save(dict(model=converter.to_official(ours, (64, 64, 64))), tmp_path / 'official.pth')
    script = ROOT / 'tools/converters/vit_resnas.py'

    def run(*args: str) -> str:
        done = subprocess.run([sys.executable, str(script), *args], cwd=tmp_path, capture_output=True, text=True)
        return done.stdout if done.returncode == 0 else done.stderr

    said = run('official.pth', 'ours.pth', '--head-dims', '64', '64', '64')
    assert "dict(type='vitnas.ViTRes', arch='vit-res-tiny')" in said
    backbone = ViTRes(arch='vit-res-tiny')
    load_pretrained(backbone, tmp_path / 'ours.pth')
    assert all(torch.equal(w, ours[f'backbone.{name}']) for name, w in backbone.state_dict().items())
    run('ours.pth', 'back.pth', '--to-official', '--head-dims', '64', '64', '64')
    first, back = (torch.load(tmp_path / f'{name}.pth', weights_only=True)['model'] for name in ('official', 'back'))
    assert common.digest(first) == common.digest(back)
    refused = run('official.pth', 'never.pth', '--head-dims', '64', '64', '80')
    assert refused.startswith('CheckpointError: blocks.10.attn.qkv.weight has shape (2304, 768)')
    assert 'Traceback' not in refused and not (tmp_path / 'never.pth').exists()


def test_other_files_are_refused() -> None:
    official = converter.to_official(network(small()), HEAD_DIMS)

    def without(name: str) -> State:
        return {key: tensor for key, tensor in official.items() if key != name}

    for state, words in (
        ({**official, 'blocks.0.attn.gate': torch.zeros(1)}, 'blocks.0.attn.gate is none of its tensors'),
        (without('blocks.3.mlp.fc1.weight'), 'it lacks blocks.3.mlp.fc1.weight'),
        (without('norm.bias'), r'norm.bias is missing; in a ViT-ResNAS of its other tensors it is \(40,\)'),
        ({**official, 'blocks.2.pos_embed': torch.zeros(1, 9, 32)}, r'blocks.2.pos_embed is \(1, 9, 32\); in a'),
        ({'fc.weight': torch.zeros(2, 2)}, 'fc.weight is none of its tensors'),
    ):
        with pytest.raises(CheckpointError, match=words):
            converter.to_vitnas(state, HEAD_DIMS)
    with pytest.raises(CheckpointError, match='it has 3 stages, but 2 sizes of heads are given'):
        converter.to_official(network(small()), (8, 12))
    with pytest.raises(CheckpointError, match='backbone.norm0.weight has no place in the published layout'):
        converter.to_official(network(small(), out_indices=(0, 2)), HEAD_DIMS)
