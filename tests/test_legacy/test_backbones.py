"""Supernets of an earlier version, and networks extracted from them, load and give the same outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from mmengine.registry import MODELS
from mmengine.runner import load_checkpoint

from tools import extract_subnet
from vitnas_core import zoo
from vitnas_core.backbones import elastic_backbone

from .common import folders, images, read, unpack

FOLDERS = folders('backbones')
every_backbone = pytest.mark.parametrize('name', FOLDERS)


@torch.no_grad()
def outputs(model: Any, x: torch.Tensor) -> dict[str, np.ndarray]:
    """Logits, and about 200 numbers of each map."""
    found = {'logits': model(x, mode='tensor').numpy()}
    for i, output in enumerate(model.backbone(x)):
        flat = output.flatten()
        found[f'map{i}'] = flat[:: max(1, flat.numel() // 200)].numpy()
    return found


def check(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> None:
    """To float32's precision, relative to the largest number of each output."""
    assert found.keys() == wanted.keys()
    for name, values in wanted.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-6, atol=1e-6 * max(1.0, np.abs(values).max()))


def input_of(folder: Path) -> torch.Tensor:
    return images(folder.parents[1], 56 if read(folder / 'model.json')['backbone']['type'] == 'vitnas.ViTRes' else 32)


@every_backbone
def test_a_supernet_gives_its_outputs(tmp_path: Path, name: str) -> None:
    folder = FOLDERS[name]
    model = MODELS.build(read(folder / 'model.json'))
    load_checkpoint(model, str(unpack(folder / 'supernet.pth.xz', tmp_path)), strict=True)
    backbone, stored, x = elastic_backbone(model.eval()), np.load(folder / 'outputs.npz'), input_of(folder)
    for i, arch in enumerate(read(folder / 'archs.json')):
        backbone.set_arch(arch)
        wanted = {key.partition('_')[2]: stored[key] for key in stored.files if key.startswith(f'{i}_')}
        check(outputs(model, x), wanted)


@every_backbone
def test_an_extracted_network_gives_its_outputs(tmp_path: Path, name: str) -> None:
    """By the line that the tool printed, and as ``load_from`` of the whole model."""
    folder = FOLDERS[name]
    weights = str(unpack(folder / 'extracted.safetensors.xz', tmp_path))
    config, printed = read(folder / 'model.json'), read(folder / 'printed.json')
    fixed = {**config['backbone'], **printed, 'arch': str(folder / 'extracted_arch.json')}
    del fixed['space']
    fixed['init_cfg']['checkpoint'] = weights
    head = dict(config['head'], in_channels=safetensors.torch.load_file(weights)['head.fc.weight'].shape[1])
    model = MODELS.build(dict(config, backbone=fixed, head=head))
    load_checkpoint(model, weights, strict=True)
    wanted, x = dict(np.load(folder / 'extracted.npz')), input_of(folder)
    check(outputs(model.eval(), x), wanted)
    again = MODELS.build(dict(config, backbone=fixed, head=head))
    again.backbone.init_weights()
    again.head = model.head
    check(outputs(again.eval(), x), wanted)


@every_backbone
def test_extracting_again_gives_the_same_files(tmp_path: Path, name: str) -> None:
    folder = FOLDERS[name]
    (tmp_path / 'config.py').write_text(f"default_scope = 'mmpretrain'\nmodel = {read(folder / 'model.json')!r}\n")
    files = tmp_path / 'config.py', unpack(folder / 'supernet.pth.xz', tmp_path), folder / 'extracted_arch.json'
    extract_subnet.main([*map(str, files), '--out', str(tmp_path / 'out')])
    assert zoo.load_arch(tmp_path / 'out' / 'arch.json') == zoo.load_arch(folder / 'extracted_arch.json')
    then = safetensors.torch.load_file(unpack(folder / 'extracted.safetensors.xz', tmp_path))
    now = safetensors.torch.load_file(tmp_path / 'out' / 'weights.safetensors')
    assert now.keys() == then.keys()
    assert not [key for key, tensor in then.items() if not torch.equal(tensor, now[key])]
