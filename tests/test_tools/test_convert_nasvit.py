"""The converter of NASViT's supernets: used weights are kept exactly, files are found, wrong ones are refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from mmengine.registry import MODELS
from torch import Tensor

from tests.families import FAMILIES
from tools.converters import nasvit as converter
from vitnas_core.auto import fill_auto
from vitnas_core.backbones import NASViT
from vitnas_core.checkpoints import load_weights
from vitnas_core.errors import CheckpointError
from vitnas_core.spaces import SearchSpace

ROOT = Path(__file__).parents[2]
State = dict[str, Tensor]


def space() -> SearchSpace:
    """The one of the generic tests with MLPs as published, whose ratio is not searched."""
    data = json.loads(FAMILIES['nasvit'].space.to_json())
    for stage in data['stages'][2:-1]:
        stage.update(mlp_ratio=[1], num_windows=[1])
    return SearchSpace.from_dict(data)


def network(classes: int = 5) -> State:
    """An ImageClassifier's random weights."""
    backbone = NASViT(space=space(), official=True)
    state = {
        f'backbone.{name}': torch.randn(tensor.shape) if tensor.is_floating_point() else torch.zeros_like(tensor)
        for name, tensor in backbone.state_dict().items()
    }
    width = backbone.out_channels()[0]
    return state | {'head.fc.weight': torch.randn(classes, width), 'head.fc.bias': torch.randn(classes)}


def test_round_trip_keeps_every_bit() -> None:
    ours = network()
    official = converter.to_official(ours, space())
    again = converter.to_vitnas(official, space())
    assert again.keys() == ours.keys() and all(torch.equal(again[name], ours[name]) for name in ours)
    wrapped = {f'module.{name}': tensor for name, tensor in official.items()}
    assert converter.to_vitnas(wrapped, space()).keys() == ours.keys()


def test_what_is_not_read_may_be_missing() -> None:
    """Copies of statistics, counters, indices; the fixtures' files have none."""
    official = converter.to_official(network(), space())
    unread = ('relative_position_index', 'num_batches_tracked', 'rescale')
    few = {n: t for n, t in official.items() if not n.endswith(unread) and '.bn_tracking.' not in n}
    assert len(few) < len(official)
    assert converter.to_vitnas(few, space()).keys() == network().keys()


def run(*args: Any) -> subprocess.CompletedProcess:
    command = [sys.executable, str(ROOT / 'tools/converters/nasvit.py'), *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT)


def test_on_files(tmp_path: Path) -> None:
    """Averaged weights of a published file, then a model that loads what was written; and back."""
    ours = network()
    averaged = converter.to_official(ours, space())
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


@pytest.mark.parametrize(
    ('change', 'words'),
    [
        (lambda s: s.pop('blocks.0.mobile_inverted_conv.depth_conv.conv.conv.weight'), 'it lacks blocks.0.mobile'),
        (lambda s: s.update({'blocks.99.norm1.weight': torch.ones(3)}), 'blocks.99.norm1.weight is no tensor'),
        (lambda s: s.update({'first_conv.conv.conv.weight': torch.ones(3, 3, 3, 3)}), 'backbone.stem.weight is'),
        (lambda s: s.update({'blocks.3.attn.q.linear.weight': torch.ones(3, 3)}), 'queries, keys and values have'),
        (
            lambda s: s.update({'blocks.3.attn.relative_position_bias_table': torch.ones(9, 3)}),
            'a published one has 1225',
        ),
    ],
)
def test_other_files_are_refused(change: Any, words: str) -> None:
    official = converter.to_official(network(), space())
    change(official)
    with pytest.raises(CheckpointError) as err:
        converter.to_vitnas(official, space())
    assert words in str(err.value)


def test_weights_with_the_paper_s_scaling_have_no_place() -> None:
    paper = {f'backbone.{name}': tensor for name, tensor in NASViT(space=space()).state_dict().items()}
    with pytest.raises(CheckpointError, match='scale_attn.*in a supernet of .* with official=True'):
        converter.to_official(paper, space())


def test_a_missing_file(tmp_path: Path) -> None:
    done = run(tmp_path / 'none.pth', tmp_path / 'ours.pth')
    assert done.returncode == 1 and 'there is no file' in done.stderr and not (tmp_path / 'ours.pth').exists()
