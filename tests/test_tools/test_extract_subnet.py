"""``tools/extract_subnet.py``: what it writes runs by itself, and what is wrong is said before anything is written."""

import ast
import json
from pathlib import Path

import pytest
import torch
from mmengine.registry import MODELS
from safetensors import safe_open

from tests.families import FAMILIES
from tools import extract_subnet
from vitnas_core import zoo
from vitnas_core.auto import fill_auto
from vitnas_core.checkpoints import load_weights
from vitnas_core.errors import ArchError, CheckpointError, VitnasError
from vitnas_core.spaces import SearchSpace

FAMILY = FAMILIES['autoformer']
MODEL = dict(
    type='mmpretrain.ImageClassifier',
    backbone=dict(
        type='vitnas.AutoFormer', space=FAMILY.space.to_dict(), embed_dims=80, out_type='avg_featmap', **FAMILY.settings
    ),
    head=dict(type='mmpretrain.LinearClsHead', num_classes=10, in_channels='auto'),
)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with a supernet's config and weights and an architecture."""
    (tmp_path / 'config.py').write_text(
        f"default_scope = 'mmpretrain'\nmodel = {MODEL!r}\ndata_preprocessor = dict(mean=[1, 2, 3], std=[4, 5, 6])\n"
    )
    model = MODELS.build(fill_auto(MODEL))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    torch.save(dict(state_dict=model.state_dict(), meta=dict(epoch=3)), tmp_path / 'supernet.pth')
    (tmp_path / 'best_arch.json').write_text(FAMILY.space.smallest().to_json())
    return tmp_path


def run(files: Path, *more: str, checkpoint: str = 'supernet.pth', arch: str = 'best_arch.json') -> torch.nn.Module:
    paths = [str(files / name) for name in ('config.py', checkpoint, arch)]
    return extract_subnet.main([*paths, '--out', str(files / 'out'), *more])


def test_the_files_make_the_same_network(files: Path, capsys: pytest.CaptureFixture) -> None:
    extracted = run(files, '--pth')
    out = capsys.readouterr().out
    assert {path.name for path in (files / 'out').iterdir()} == {'arch.json', 'weights.safetensors', 'weights.pth'}
    arch = zoo.load_arch(files / 'out' / 'arch.json')
    assert arch == FAMILY.space.smallest()
    with safe_open(files / 'out' / 'weights.safetensors', 'pt') as file:
        notes = file.metadata()
    assert json.loads(notes['vitnas'])['space'] == SearchSpace.of(arch).to_dict()
    assert torch.load(files / 'out' / 'weights.pth', weights_only=True)['meta'] == notes
    cost = FAMILY.cls.cost(arch, 32, **FAMILY.settings)
    assert f'backbone: {cost} at 32 x 32' in out

    # The line that was printed, in the config of a fixed network.
    line = next(line for line in out.splitlines() if 'Pretrained' in line)
    call = ast.parse(line.strip()).body[0].value
    backbone = eval(compile(ast.Expression(call), 'line', 'eval'), dict(dict=dict))
    cfg = dict(MODEL, backbone=dict(backbone, out_type='avg_featmap', **FAMILY.settings))
    model = MODELS.build(fill_auto(cfg))
    model.backbone.init_weights()
    for name, tensor in extracted.backbone.state_dict().items():
        assert torch.equal(model.backbone.state_dict()[name], tensor), name
    for suffix in ('safetensors', 'pth'):
        again = MODELS.build(fill_auto(cfg))
        load_weights(again, files / 'out' / f'weights.{suffix}')
        images = torch.randn(2, 3, 32, 32)
        assert torch.equal(again.eval()(images, mode='tensor'), extracted.eval()(images, mode='tensor'))


def test_the_preprocessor_of_the_whole_config_is_the_models(files: Path) -> None:
    assert run(files).data_preprocessor.mean.flatten().tolist() == [1, 2, 3]


def test_wrong_checkpoints(files: Path) -> None:
    with pytest.raises(CheckpointError, match='there is no checkpoint file .*nowhere.pth'):
        run(files, checkpoint='nowhere.pth')
    whole = (files / 'supernet.pth').read_bytes()
    (files / 'torn.pth').write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CheckpointError, match='torn.pth is damaged, or no checkpoint'):
        run(files, checkpoint='torn.pth')
    torch.save(torch.nn.Linear(2, 2).state_dict(), files / 'other.pth')
    with pytest.raises(CheckpointError, match='other.pth does not fit this model: it has no backbone.cls_token'):
        run(files, checkpoint='other.pth')
    assert not (files / 'out').exists()


def test_wrong_architectures(files: Path) -> None:
    for change, message in FAMILY.misfits:
        data = FAMILY.space.largest().to_dict()
        change(data)
        (files / 'misfit.json').write_text(json.dumps(data))
        with pytest.raises(ArchError) as err:
            run(files, arch='misfit.json')
        assert str(err.value).startswith(message) and str(err.value).endswith('misfit.json)')
    with pytest.raises(ArchError, match='neither a file nor an architecture of the zoo'):
        run(files, arch='nowhere.json')
    assert not (files / 'out').exists()


def test_a_folder_that_cannot_be_written(files: Path) -> None:
    (files / 'out').write_text('a file')
    with pytest.raises(VitnasError, match='--out .*out cannot be written'):
        run(files)


def test_a_run_that_fails_leaves_no_architecture_beside_other_weights(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(files)
    (files / 'best_arch.json').write_text(FAMILY.space.largest().to_json())

    def full(*args: object) -> None:
        raise OSError('no space left on device')

    monkeypatch.setattr(extract_subnet, 'atomic_write', full)
    with pytest.raises(VitnasError, match='no space left'):
        run(files)
    assert {path.name for path in (files / 'out').iterdir()} == {'weights.safetensors'}


def test_a_model_without_an_elastic_backbone(files: Path) -> None:
    (files / 'config.py').write_text(
        "model = dict(type='mmpretrain.ImageClassifier', backbone=dict(type='ResNet', depth=18))"
    )
    with pytest.raises(VitnasError, match='the model should hold one elastic backbone'):
        run(files)
