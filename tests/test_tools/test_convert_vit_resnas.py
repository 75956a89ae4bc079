"""The command that converts ViT-ResNAS's checkpoints: its files, output and errors."""

import subprocess
import sys
from pathlib import Path

import torch

from tests.test_families.test_vit_res_weights import network
from vitnas_core.backbones import ViTRes
from vitnas_core.backbones.foreign import digest
from vitnas_core.backbones.pretrained import load_pretrained
from vitnas_core.families.vit_res.weights import to_official

ROOT = Path(__file__).parents[2]


def test_the_command(tmp_path: Path) -> None:
    ours = network('vit-res-tiny', 3)
    torch.save(dict(model=to_official(ours, (64, 64, 64))), tmp_path / 'official.pth')
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
    assert digest(first) == digest(back)
    refused = run('official.pth', 'never.pth', '--head-dims', '64', '64', '80')
    assert refused.startswith('CheckpointError: blocks.10.attn.qkv.weight has shape (2304, 768)')
    assert 'Traceback' not in refused and not (tmp_path / 'never.pth').exists()
