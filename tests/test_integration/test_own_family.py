"""A custom family needs only the parts that CONTRIBUTING lists, also outside of this repository."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from mmengine.config import Config

from tests import supernets, toy_mixer
from tests.families import FAMILIES
from tests.processes import run
from tests.stock import fpn, mask_rcnn
from tests.test_search import common
from tests.toy_mixer import ToyMixer
from tests.toy_mixer.arch import cost
from vitnas_core.auto import elastic_class
from vitnas_core.backbones import FAMILIES as BACKBONES
from vitnas_core.backbones import S3, ElasticBackbone, StagedBackbone
from vitnas_core.costs.algebra import NOTHING
from vitnas_core.errors import VitnasError
from vitnas_core.registry import MODELS
from vitnas_core.spaces import Schema

FOLDER = Path(toy_mixer.__file__).parent
TOY = FAMILIES['toy_mixer']
IMPORTS = dict(imports=['vitnas_core', 'own_family'])


def test_the_toy_is_short() -> None:
    assert sum(len(path.read_text().splitlines()) for path in FOLDER.glob('*.py')) <= 150


def test_a_family_in_a_folder_anywhere(tmp_path: Path) -> None:
    """In a process where no test enters it: trained, searched, extracted, priced, and put into a Mask R-CNN."""
    shutil.copytree(FOLDER, tmp_path / 'own_family', ignore=shutil.ignore_patterns('__pycache__'))
    supernet = supernets.supernet_config(tmp_path / 'supernet', model=supernets.model_config(TOY), max_epochs=1)
    loop = dict(type='vitnas.EvolutionSearchLoop', population=4, generations=1, mutations=2, crossovers=2)
    search = common.config(tmp_path / 'search', loop, 'toy_mixer', load_from=str(tmp_path / 'supernet/epoch_1.pth'))
    detector = mask_rcnn(TOY, fpn(), (0, -1))
    detector.backbone.pop('space')
    detector.backbone.update(arch=str(tmp_path / 'subnet/arch.json'))
    detector.backbone.init_cfg = dict(type='Pretrained', checkpoint=str(tmp_path / 'subnet/weights.safetensors'))
    configs = dict(supernet=supernet, search=search, detector=dict(model=detector, default_scope='mmdet'))
    for name, config in configs.items():
        Config(dict(config, custom_imports=IMPORTS)).dump(tmp_path / f'{name}.py')
    printed = run(
        f"""if True:
        import os, sys
        from tools import extract_subnet, train
        from tools.analysis import get_cost
        os.chdir({str(tmp_path)!r})
        train.main(['supernet.py'])
        train.main(['search.py'])
        arch = 'search/best_arch.json'
        extract_subnet.main(['supernet.py', 'supernet/epoch_1.pth', arch, '--out', 'subnet'])
        get_cost.main([arch, '--shape', '32', '--custom-imports', 'own_family'])

        from mmdet.testing import demo_mm_inputs
        from mmdet.registry import MODELS
        from mmengine.config import Config
        from mmengine.registry import DefaultScope
        with DefaultScope.overwrite_default_scope('mmdet'):
            model = MODELS.build(Config.fromfile('detector.py').model)
        model.init_weights()
        data = demo_mm_inputs(2, [[3, 75, 107], [3, 61, 90]], num_items=[2, 1], num_classes=3, with_mask=True)
        batch = model.data_preprocessor(data, training=True)
        loss, _ = model.parse_losses(model.loss(batch['inputs'], batch['data_samples']))
        loss.backward()
        assert loss.isfinite() and len(model.eval().test_step(data)) == 2
        assert type(model.backbone).__module__ == 'own_family.backbone' and 'tests' not in sys.modules
        """,
        tmp_path,
    )
    assert any(line.split()[:2] == ['best_arch.json', 'toy_mixer'] for line in printed.splitlines())


def test_the_path_of_a_class_will_do() -> None:
    """As in a config of mmengine's new kind that was written to a file."""
    assert elastic_class('tests.toy_mixer.ToyMixer') is elastic_class('vitnas.ToyMixer') is TOY.cls
    assert elastic_class('torch.nn.Identity') is elastic_class('no.such.Backbone') is None


def test_what_a_family_forgets_is_named() -> None:
    class Unwritten(ElasticBackbone):
        pass

    class Staged(StagedBackbone):
        pass

    class Nameless(Staged):
        run = widths = StagedBackbone.stage_blocks

    class Silent(ToyMixer):
        def add_norms(self, stride: int, eps: float = 1e-5) -> None:
            pass

    for build in (Unwritten, lambda: MODELS.build(dict(type=Unwritten))):
        with pytest.raises(TypeError, match=r"abstract class Unwritten .*'?run'?, '?stage_blocks'?, '?widths'?"):
            build()
    with pytest.raises(TypeError, match=r"abstract class Staged .*methods '?run'?, '?widths'?"):
        Staged({})
    with pytest.raises(TypeError, match='Nameless should have a `schema`, the choices of its family'):
        Nameless(dict(arch=None, space=None, init_cfg=None))
    with pytest.raises(TypeError, match='Silent should call `set_outputs`'):
        Silent(space=TOY.space)
    with pytest.raises(TypeError, match='Free should have `cost_of`'):

        class Free(StagedBackbone):
            schema = Schema('free', 'Free')

    with pytest.raises(TypeError, match='Short should take out_indices, which its cost depends on'):

        class Short(StagedBackbone):
            schema, cost_of = Schema('short', 'Short'), staticmethod(cost)


def test_a_family_has_one_backbone() -> None:
    with pytest.raises(
        VitnasError, match=r"family 's3' of .*Other is taken by vitnas_core\.families\.s3\.backbone\.S3;"
    ):

        class Other(StagedBackbone):
            schema, cost_of = Schema('s3', 'Other'), staticmethod(lambda network, size, num_classes: NOTHING)

    assert BACKBONES['s3'] is S3 and BACKBONES['toy_mixer'] is TOY.cls
