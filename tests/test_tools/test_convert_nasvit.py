"""The command that converts NASViT's supernets: it finds averaged weights, and models load its files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from mmengine.registry import MODELS

from tests.test_families.test_nasvit_weights import network, space
from vitnas_core.auto import fill_auto
from vitnas_core.checkpoints import load_weights
from vitnas_core.families.nasvit.weights import to_official

ROOT = Path(__file__).parents[2]


def run(*args: Any) -> subprocess.CompletedProcess:
    command = [sys.executable, str(ROOT / 'tools/converters/nasvit.py'), *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT)


def test_on_files(tmp_path: Path) -> None:
    """Averaged weights of a published file, then a model that loads what was written; and back."""
    ours = network()
    averaged = to_official(ours, space())
    plain = {name: torch.zeros_like(tensor) for name, tensor in averaged.items()}
    torch.save(dict(model=plain, model_ema=averaged, epoch=3), tmp_path / 'official.pth')
    (tmp_path / 'space.json').write_text(space().to_json())
    done = run(tmp_path / 'official.pth', tmp_path / 'ours.pth', '--space', tmp_path / 'space.json')
    assert done.returncode == 0, done.stderr
    assert "dict(type='vitnas.NASViT', space=" in done.stdout and 'official=True' in done.stdout
    model = MODELS.build(
        fill_auto(
            dict(
                type='mmpretrain.ImageClassifier',
                backbone=dict(type='vitnas.NASViT', space=str(tmp_path / 'space.json'), official=True),
                neck=dict(type='mmpretrain.GlobalAveragePooling'),
                head=dict(type='mmpretrain.LinearClsHead', num_classes=5, in_channels='auto'),
            )
        )
    )
    load_weights(model, tmp_path / 'ours.pth')
    assert all(torch.equal(tensor, ours[name]) for name, tensor in model.state_dict().items())
    done = run(tmp_path / 'ours.pth', tmp_path / 'back.pth', '--space', tmp_path / 'space.json', '--to-official')
    assert done.returncode == 0, done.stderr
    back = torch.load(tmp_path / 'back.pth', weights_only=True)['model']
    assert back.keys() == averaged.keys() and all(torch.equal(back[name], averaged[name]) for name in back)


def test_a_missing_file(tmp_path: Path) -> None:
    done = run(tmp_path / 'none.pth', tmp_path / 'ours.pth')
    assert done.returncode == 1 and 'there is no file' in done.stderr and not (tmp_path / 'ours.pth').exists()
