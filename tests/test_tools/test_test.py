"""``tools/test.py``: a supernet at an architecture scores like its subnet, and errors are clear."""

import json
from pathlib import Path

import pytest
import torch
from mmengine.registry import MODELS

from tests.families import FAMILIES
from tools import extract_subnet
from tools import test as tool
from vitnas_core.auto import fill_auto
from vitnas_core.errors import ArchError, CheckpointError, VitnasError

FAMILY = FAMILIES['autoformer']
ROOT = Path(__file__).parents[2]
BACKBONE = dict(type='vitnas.AutoFormer', out_type='avg_featmap', **FAMILY.settings)
HEAD = dict(type='mmpretrain.LinearClsHead', num_classes=10, in_channels='auto')
SMALLEST = FAMILY.space.smallest()


def write_config(path: Path, **backbone: object) -> Path:
    model = dict(type='mmpretrain.ImageClassifier', backbone=dict(BACKBONE, **backbone), head=HEAD)
    base = [str(ROOT / 'configs/_base_/default_runtime.py'), str(ROOT / 'configs/_base_/datasets/digits.py')]
    path.write_text(
        f'_base_ = {base!r}\nmodel = {model!r}\ntest_cfg = dict()\ntest_evaluator = dict(topk=(1, 2, 3, 5))\n'
    )
    return path


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with a supernet's config and weights."""
    write_config(tmp_path / 'supernet.py', space=FAMILY.space.to_dict())
    cfg = dict(type='mmpretrain.ImageClassifier', backbone=dict(BACKBONE, space=FAMILY.space.to_dict()), head=HEAD)
    model = MODELS.build(fill_auto(cfg))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    torch.save(dict(state_dict=model.state_dict()), tmp_path / 'supernet.pth')
    (tmp_path / 'best_arch.json').write_text(SMALLEST.to_json())
    return tmp_path


def run(files: Path, *more: str, config: str = 'supernet.py', checkpoint: str = 'supernet.pth') -> dict:
    return tool.main([str(files / config), str(files / checkpoint), '--work-dir', str(files / 'work'), *more])


def test_a_supernet_at_an_architecture_is_its_subnet(files: Path, capsys: pytest.CaptureFixture) -> None:
    arch = str(files / 'best_arch.json')
    result = run(files, '--arch', arch)
    assert f'the supernet is evaluated at {arch}: {SMALLEST.to_json()}' in capsys.readouterr().out
    assert json.loads((files / 'work' / 'test.json').read_text()) == result
    assert result['arch'] == SMALLEST.to_dict() and 0 < result['metrics']['accuracy/top1'] < 100

    extract_subnet.main([str(files / 'supernet.py'), str(files / 'supernet.pth'), arch, '--out', str(files)])
    write_config(files / 'fixed.py', arch=str(files / 'arch.json'))
    fixed = run(files, config='fixed.py', checkpoint='weights.safetensors')
    assert fixed['metrics'] == result['metrics'] and fixed['arch'] == result['arch']

    largest = run(files)
    assert 'evaluated at the largest of its space; --arch gives another' in capsys.readouterr().out
    assert largest['arch'] == FAMILY.space.largest().to_dict() and largest['metrics'] != result['metrics']


def test_mistakes(files: Path) -> None:
    with pytest.raises(CheckpointError, match='there is no checkpoint file'):
        run(files, checkpoint='nowhere.pth')
    with pytest.raises(ArchError, match='neither a file nor an architecture of the zoo'):
        run(files, '--arch', 'nowhere.json')
    with pytest.raises(ArchError, match=r'stages\[0\].embed_dim is 192; the weights have 72 \(autoformer-tiny\)'):
        run(files, '--arch', 'autoformer-tiny')
    with pytest.raises(VitnasError, match='a test needs `test_evaluator`, but .*supernet.py has none'):
        run(files, '--cfg-options', 'test_evaluator=None')
    write_config(files / 'fixed.py', arch=SMALLEST.to_dict())
    with pytest.raises(CheckpointError, match='supernet.pth does not fit this model'):
        run(files, config='fixed.py')
    torch.save(
        MODELS.build(
            fill_auto(
                dict(type='mmpretrain.ImageClassifier', backbone=dict(BACKBONE, arch=SMALLEST.to_dict()), head=HEAD)
            )
        ).state_dict(),
        files / 'fixed.pth',
    )
    with pytest.raises(VitnasError, match='--arch is for supernets'):
        run(files, '--arch', str(files / 'best_arch.json'), config='fixed.py', checkpoint='fixed.pth')
