"""Converters of ViTAS's release and of mmpretrain's Twins-SVT as commands."""

import json
from pathlib import Path

import pytest
import torch

from tests.families import FAMILIES
from tests.test_families.test_vitas_weights import random_state
from tools.converters import twins, vitas
from vitnas_core.backbones import ViTASDeiT, ViTASTwins
from vitnas_core.backbones.pretrained import Note, load_pretrained
from vitnas_core.errors import CheckpointError

DEIT = FAMILIES['vitas_deit'].space


@pytest.mark.parametrize('kind', ['arch', 'space'])
def test_vitas_there_and_back(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    network = DEIT.largest().to_dict() if kind == 'arch' else DEIT.to_dict()
    file = tmp_path / 'network.json'
    file.write_text(json.dumps(network))
    backbone = ViTASDeiT(**{kind: str(file)}, official=True, sharing='bilateral')
    state = random_state(backbone, backbone.embed_dims)
    torch.save({'state_dict': state}, tmp_path / 'ours.pth')
    official, back = tmp_path / 'official.pth', tmp_path / 'back.safetensors'
    vitas.main([str(tmp_path / 'ours.pth'), str(official), f'--{kind}', str(file), '--to-official'])
    names = torch.load(official, weights_only=True)['model']
    assert all(name.startswith('net.backbone_') for name in names)
    assert any('.attn.qkv.' in name for name in names) == (kind == 'arch')
    vitas.main([str(official), str(back), f'--{kind}', str(file)])
    assert f"backbone: dict(type='vitnas.ViTASDeiT', {kind}=" in capsys.readouterr().out
    load_pretrained(backbone, back)
    assert all(torch.equal(state[f'backbone.{name}'], w) for name, w in backbone.state_dict().items())


def test_vitas_says_how_a_superformer_shares(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    space, ours, official, back = (str(tmp_path / name) for name in ('s.json', 'o.pth', 'v.pth', 'back.pth'))
    Path(space).write_text(json.dumps(DEIT.to_dict()))
    backbones = {name: ViTASDeiT(space=space, official=True, sharing=name) for name in ('bilateral', 'ordinal')}
    torch.save({'state_dict': random_state(backbones['ordinal'], backbones['ordinal'].embed_dims)}, ours)
    vitas.main([ours, official, '--space', space, '--to-official'])
    for sharing, other, more in (('bilateral', 'ordinal', []), ('ordinal', 'bilateral', ['--sharing', 'ordinal'])):
        vitas.main([official, back, '--space', space, *more])
        assert f"official=True, sharing='{sharing}')" in capsys.readouterr().out
        assert torch.load(back, weights_only=True)['meta']['vitnas'] == Note.of(backbones[sharing]).to_json()
        load_pretrained(backbones[sharing], back)
        with pytest.raises(CheckpointError, match=f"holds weights for sharing='{sharing}'"):
            load_pretrained(backbones[other], back)
    with pytest.raises(SystemExit):
        vitas.main([official, back, '--arch', 'vitas-deit-b', '--sharing', 'ordinal'])
    assert '--sharing is for a superformer' in capsys.readouterr().err


def test_vitas_of_another_network_is_refused(tmp_path: Path) -> None:
    backbone = ViTASDeiT(arch='vitas-deit-858m', official=True)
    state = {f'backbone.{name}': w for name, w in backbone.state_dict().items()}
    torch.save({'state_dict': state}, tmp_path / 'ours.pth')
    out = str(tmp_path / 'out.pth')
    with pytest.raises(SystemExit, match='CheckpointError: .* in this network it is'):
        vitas.main([str(tmp_path / 'ours.pth'), out, '--arch', 'vitas-deit-1000m', '--to-official'])
    with pytest.raises(SystemExit, match='not a ViTAS checkpoint of this network: backbone'):
        vitas.main([str(tmp_path / 'ours.pth'), out, '--arch', 'vitas-deit-858m'])
    assert not Path(out).exists()


def test_twins_there_and_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = FAMILIES['vitas_twins'].space.largest().to_dict()
    file = tmp_path / 'arch.json'
    file.write_text(json.dumps(data))
    backbone = ViTASTwins(arch=str(file))
    state = random_state(backbone, backbone.embed_dims[-1])
    torch.save({'state_dict': state}, tmp_path / 'ours.pth')
    theirs, back = tmp_path / 'theirs.pth', tmp_path / 'back.pth'
    twins.main([str(tmp_path / 'ours.pth'), str(theirs), '--arch', str(file), '--to-mmpretrain'])
    twins.main([str(theirs), str(back), '--arch', str(file)])
    assert "backbone: dict(type='vitnas.ViTASTwins', arch=" in capsys.readouterr().out
    converted = torch.load(back, weights_only=True)['state_dict']
    assert converted.keys() == state.keys() and all(torch.equal(converted[name], w) for name, w in state.items())
    with pytest.raises(SystemExit, match='not a Twins-SVT of this architecture: '):
        twins.main([str(tmp_path / 'ours.pth'), str(back), '--arch', str(file)])
