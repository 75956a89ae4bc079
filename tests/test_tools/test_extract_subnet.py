"""``tools/extract_subnet.py``: its files run on their own, and errors come before anything is written."""

import ast
import json
from pathlib import Path

import pytest
import safetensors.torch
import torch
from mmengine.config import Config
from mmengine.registry import MODELS
from safetensors import safe_open

from tests.families import FAMILIES
from tests.test_search import common
from tools import extract_subnet
from vitnas_core import zoo
from vitnas_core.auto import fill_auto
from vitnas_core.checkpoints import load_weights
from vitnas_core.errors import ArchError, CheckpointError, VitnasError
from vitnas_core.spaces import Arch, SearchSpace

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
    save_supernet(tmp_path, MODEL, FAMILY.space.smallest())
    return tmp_path


def save_supernet(folder: Path, config: dict, arch: Arch) -> None:
    (folder / 'config.py').write_text(
        f"default_scope = 'mmpretrain'\nmodel = {config!r}\ndata_preprocessor = dict(mean=[1, 2, 3], std=[4, 5, 6])\n"
    )
    model = MODELS.build(fill_auto(config))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    torch.save(dict(state_dict=model.state_dict(), meta=dict(epoch=3)), folder / 'supernet.pth')
    (folder / 'best_arch.json').write_text(arch.to_json())


def printed_backbone(out: str) -> dict:
    """The line that was printed for the config of a fixed network."""
    line = next(line for line in out.splitlines() if 'Pretrained' in line)
    call = ast.parse(line.strip()).body[0].value
    return eval(compile(ast.Expression(call), 'line', 'eval'), dict(dict=dict))


def run(files: Path, *more: str, checkpoint: str = 'supernet.pth', arch: str = 'best_arch.json') -> torch.nn.Module:
    paths = [str(files / name) for name in ('config.py', checkpoint, arch)]
    return extract_subnet.main([*paths, '--out', str(files / 'out'), *more])


def test_a_config_may_give_the_backbone_as_a_class(files: Path, capsys: pytest.CaptureFixture) -> None:
    """As pure-Python configs do; what is printed fits any config."""
    config = files / 'config.py'
    text = config.read_text().replace("'vitnas.AutoFormer'", 'AutoFormer')
    config.write_text(f'from vitnas_core.backbones import AutoFormer\n{text}')
    run(files)
    assert printed_backbone(capsys.readouterr().out)['type'] == 'vitnas.AutoFormer'


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

    cfg = dict(MODEL, backbone=dict(printed_backbone(out), out_type='avg_featmap', **FAMILY.settings))
    model = MODELS.build(fill_auto(cfg))
    model.backbone.init_weights()
    for name, tensor in extracted.backbone.state_dict().items():
        assert torch.equal(model.backbone.state_dict()[name], tensor), name
    for suffix in ('safetensors', 'pth'):
        again = MODELS.build(fill_auto(cfg))
        load_weights(again, files / 'out' / f'weights.{suffix}')
        images = torch.randn(2, 3, 32, 32)
        assert torch.equal(again.eval()(images, mode='tensor'), extracted.eval()(images, mode='tensor'))


def test_a_part_of_a_published_superformer_keeps_its_ways(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    family = FAMILIES['vitas_deit']
    backbone = dict(type='vitnas.ViTASDeiT', official=True, out_type='cls_token', **family.settings)
    model = dict(MODEL, backbone=dict(backbone, space=family.space.to_dict(), sharing='bilateral'))
    save_supernet(tmp_path, model, family.space.smallest())
    extracted = run(tmp_path)
    printed = printed_backbone(capsys.readouterr().out)
    assert printed['superformer'] == 32
    fixed = MODELS.build({**backbone, **printed})
    fixed.init_weights()
    images = torch.randn(2, 3, 32, 32)
    assert torch.equal(fixed.eval()(images)[0], extracted.backbone.eval()(images)[0])


def test_the_price_is_that_of_the_image_that_is_named(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """NASViT's classifiers have a resolution of their own; dense ones take any image."""
    family = FAMILIES['nasvit']
    arch = family.space.smallest()
    for more, size in (dict(), 32), (dict(out_indices=(-1,)), 224):
        backbone = dict(type='vitnas.NASViT', space=family.space.to_dict(), **more)
        neck = dict(type='mmpretrain.GlobalAveragePooling')
        save_supernet(tmp_path, dict(MODEL, backbone=backbone, neck=neck), arch)
        run(tmp_path)
        macs = family.cls.cost(arch, size, **more).macs
        assert f' params, {macs / 1e6:.3f}M MACs at {size} x {size};' in capsys.readouterr().out


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


def test_recalibrated_statistics_are_those_that_a_search_scores_with(tmp_path: Path) -> None:
    """Those of the same architecture on the same batches: in the file, and not what the supernet had."""
    loop = dict(type='vitnas.RandomSearchLoop', num_candidates=1, recalibrate=2)
    search, arch = common.config(tmp_path / 'search', loop, 'nasvit'), FAMILIES['nasvit'].space.smallest()
    runner = common.build(search)
    runner.load_or_resume()
    runner.train_loop.scorer.activate(arch)
    Config(search).dump(tmp_path / 'config.py')
    (tmp_path / 'best_arch.json').write_text(arch.to_json())
    for batches, same in (('2', True), ('1', False), ('0', False)):
        run(tmp_path, '--recalibrate', batches, checkpoint='nasvit.pth')
        found = safetensors.torch.load_file(tmp_path / 'out' / 'weights.safetensors')
        for kind in ('running_mean', 'running_var'):
            pairs = [(tensor, runner.model.state_dict()[name]) for name, tensor in found.items() if kind in name]
            assert len(pairs) > 5 and all(torch.equal(a, b[: len(a)]) for a, b in pairs) == same


def test_recalibration_needs_images_and_batch_norms(files: Path) -> None:
    with pytest.raises(VitnasError, match='--recalibrate needs images: .*config.py has no train_dataloader'):
        run(files, '--recalibrate', '1')
    loader = common.config(files / 'search', {})['train_dataloader']
    text = (files / 'config.py').read_text()
    (files / 'config.py').write_text(f'{text}train_dataloader = {loader!r}\n')
    with pytest.raises(VitnasError, match='--recalibrate is for models with batch norms.*this one has none'):
        run(files, '--recalibrate', '1')
    assert not (files / 'out').exists()


def test_a_model_without_an_elastic_backbone(files: Path) -> None:
    (files / 'config.py').write_text(
        "model = dict(type='mmpretrain.ImageClassifier', backbone=dict(type='ResNet', depth=18))"
    )
    with pytest.raises(VitnasError, match='the model should hold one elastic backbone'):
        run(files)
