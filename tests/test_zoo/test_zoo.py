"""The zoo: names, files and data resolve; the facts of its entries are true; timm knows them."""

import json
from pathlib import Path

import pytest
import timm
import torch

from vitnas_core import zoo
from vitnas_core.backbones import FAMILIES
from vitnas_core.errors import ArchError, SpaceError, VitnasError
from vitnas_core.spaces import Arch, SearchSpace
from vitnas_core.utils.counting import count_params

every_entry = pytest.mark.parametrize('name', zoo.arch_names())


def test_published_parameters() -> None:
    assert {name: zoo.entry(name).params for name in zoo.arch_names() if name.startswith('autoformer')} == {
        'autoformer-tiny': 5_867_944,
        'autoformer-small': 22_891_432,
        'autoformer-base': 53_691_688,
    }


@every_entry
def test_costs_are_what_the_entry_says(name: str) -> None:
    entry = zoo.entry(name)
    family = FAMILIES[entry.arch.family]
    size = {'img_size': entry.input_size} if 'img_size' in family.cost_settings else {}
    cost = family.cost(entry.arch, entry.input_size, entry.num_classes, **size)
    assert (cost.params, cost.macs) == (entry.params, entry.macs)


@pytest.mark.parametrize('name', ['nasvit-a0', 'nasvit-a5', 'vitas-twins-s'])
def test_what_is_known_of_a_network_without_architecture(name: str) -> None:
    for load in (zoo.load_arch, zoo.entry):
        with pytest.raises(ArchError, match=r'[MG] MACs, .* % top-1 in Tab. \d of .*is published nowhere; the zoo has'):
            load(name)
    assert name not in zoo.arch_names()


@every_entry
def test_timm_creates_it(name: str) -> None:
    entry = zoo.entry(name)
    timm_name = f'vitnas_{name.replace("-", "_")}'
    assert timm_name in timm.list_models('vitnas_*')
    with torch.device('meta'):
        model = timm.create_model(timm_name)
    assert count_params(model) == entry.params


def test_timm_interface() -> None:
    model = timm.create_model('vitnas_autoformer_tiny', num_classes=7, img_size=64, drop_path_rate=0.1).eval()
    x = torch.randn(2, 3, 64, 64)
    features = model.forward_features(x)
    assert features.shape == (2, model.num_features, 4, 4)
    assert torch.equal(model(x), model.forward_head(features))
    assert model(x).shape == (2, 7)
    assert model.forward_head(features, pre_logits=True).shape == (2, 192)
    assert timm.data.resolve_model_data_config(model)['input_size'] == (3, 224, 224)
    model.reset_classifier(3)
    assert model(x).shape == (2, 3)
    model.reset_classifier(0)
    assert model(x).shape == (2, 192)
    assert isinstance(model.get_classifier(), torch.nn.Identity)
    assert timm.create_model('vitnas_autoformer_tiny', in_chans=3, drop_rate=0.0, global_pool='avg', num_classes=2)
    for bad in (dict(in_chans=1), dict(drop_rate=0.1), dict(features_only=True), dict(global_pool='token')):
        with pytest.raises(VitnasError, match='of a zoo model is .* and cannot be changed'):
            timm.create_model('vitnas_autoformer_tiny', **bad)
    with pytest.raises(VitnasError, match='no weights are published'):
        timm.create_model('vitnas_autoformer_tiny', pretrained=True)
    with pytest.raises(VitnasError, match='`global_pool` should be "avg"'):
        model.reset_classifier(3, 'token')


@torch.no_grad()
def test_timm_reads_the_class_token_where_a_family_does() -> None:
    model = timm.create_model('vitnas_vit_res_tiny', num_classes=3, img_size=56).eval()
    x = torch.randn(1, 3, 56, 56)
    tokens = model.forward_features(x)
    assert tokens.shape == (1, 2, 768)  # the class token and one patch
    assert torch.equal(model(x), model.head(tokens[:, 0]))
    for bad in (dict(global_pool='avg'), dict(out_type='featmap')):
        with pytest.raises(VitnasError, match='of a zoo model is .* and cannot be changed'):
            timm.create_model('vitnas_vit_res_tiny', **bad)


def test_names_files_and_data_resolve(tmp_path) -> None:
    arch, space = zoo.load_arch('autoformer-tiny'), zoo.load_space('autoformer-tiny')
    (tmp_path / 'arch.json').write_text(arch.to_json())
    (tmp_path / 'space.json').write_text(space.to_json())
    assert zoo.load_arch(tmp_path / 'arch.json') == zoo.load_arch(arch.to_dict()) == zoo.load_arch(arch) == arch
    assert zoo.load_space(str(tmp_path / 'space.json')) == zoo.load_space(space.to_dict()) == space
    entry = Path(zoo.__file__).parent / 'archs' / 'autoformer-tiny.json'
    assert zoo.load_arch(entry) == arch
    assert isinstance(arch, Arch) and isinstance(space, SearchSpace)


def test_errors_name_the_file(tmp_path) -> None:
    (tmp_path / 'bad.json').write_text(json.dumps(dict(family='autoformer')))
    with pytest.raises(ArchError, match=r'stages should be a list, but got None \(.*bad.json\)'):
        zoo.load_arch(tmp_path / 'bad.json')
    with pytest.raises(SpaceError, match=r'stages should be a list of at least one.*bad.json'):
        zoo.load_space(tmp_path / 'bad.json')
    (tmp_path / 'binary.json').write_bytes(b'\xff\xfe\x00')
    with pytest.raises(ArchError, match='binary.json'):
        zoo.load_arch(tmp_path / 'binary.json')
    with pytest.raises(ArchError, match="'autoformer-huge' is neither a file nor an architecture of the zoo"):
        zoo.load_arch('autoformer-huge')
    for ref in (None, zoo.load_arch('autoformer-tiny').to_json()):
        with pytest.raises(ArchError, match='is neither a file nor an architecture of the zoo'):
            zoo.load_arch(ref)
    with pytest.raises(SpaceError, match="'nowhere.json' is neither a file nor a space of the zoo"):
        zoo.load_space('nowhere.json')
    with pytest.raises(ArchError, match='the zoo has no architecture'):
        zoo.entry('autoformer-huge')
