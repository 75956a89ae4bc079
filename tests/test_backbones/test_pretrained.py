"""Pretrained weights in every family: fitting ones load exactly, others are refused with a clear error."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from mmengine.config import Config
from mmengine.model import PretrainedInit
from mmengine.registry import MODELS, DefaultScope
from mmengine.runner import Runner
from mmengine.runner.checkpoint import get_state_dict, save_checkpoint
from safetensors.torch import save_file
from torch import Tensor, nn

from tests.families import VARIANTS, Family
from tests.stock import backbone_cfg, retinanet
from tests.supernets import supernet_config
from tests.test_models import classifier
from tools import extract_subnet
from tools.converters import autoformer as autoformer_converter
from tools.converters import s3 as s3_converter
from vitnas_core.backbones import AutoFormer, ElasticBackbone, module
from vitnas_core.backbones.pretrained import Note, load_pretrained
from vitnas_core.errors import CheckpointError
from vitnas_core.families.autoformer import weights as autoformer_weights
from vitnas_core.families.s3 import weights as s3_weights
from vitnas_core.spaces import Arch, SearchSpace

every_family = pytest.mark.parametrize('family', VARIANTS.values(), ids=VARIANTS.keys())
# Those with positions for an image size; NASViT's are for distances (test_nasvit.py).
SIZED = {name: family for name, family in VARIANTS.items() if 'img_size' in family.elastic().settings}
State = dict[str, Tensor]


def randomised(model: nn.Module) -> nn.Module:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.1)
    return model


def fixed(family: Family, arch: Any, **settings: Any) -> ElasticBackbone:
    return family.cls(arch=arch, **{**family.settings, **settings})


def save(model: nn.Module, path: Path) -> str:
    """As mmengine's runner writes a checkpoint."""
    save_checkpoint(dict(meta=dict(epoch=3, experiment_name='x'), state_dict=get_state_dict(model)), str(path))
    return str(path)


def assert_same(found: ElasticBackbone, expected: State, new: Callable[[str], bool] = lambda name: False) -> None:
    """Every weight is the expected one, but those of new outputs, which are those of a new norm."""
    for name, tensor in found.state_dict().items():
        if name not in expected:
            assert name.startswith(found.output_weights) and new(name), name
            assert torch.equal(tensor, torch.full_like(tensor, float(name.endswith('weight')))), name
        else:
            assert torch.equal(tensor, expected[name]), name


def assert_refused(backbone: ElasticBackbone, path: str | Path, message: str, prefix: str | None = None) -> str:
    before = copy.deepcopy(backbone.state_dict())
    with pytest.raises(CheckpointError, match=message) as err:
        load_pretrained(backbone, path, prefix)
    text = str(err.value)
    assert '\n' not in text and str(path) in text and len(text) < 700
    assert all(torch.equal(tensor, before[name]) for name, tensor in backbone.state_dict().items())
    return text


# what loads


WRITERS: dict[str, Callable[[nn.Module, Path], str]] = {
    'runner': save,
    'state-dict': lambda model, path: torch.save(dict(state_dict=model.state_dict()), path) or str(path),
    'bare': lambda model, path: torch.save(model.state_dict(), path) or str(path),
    'backbone': lambda model, path: torch.save(model.backbone.state_dict(), path) or str(path),
    'backbone-in-dict': lambda model, path: save(model.backbone, path),
}


@every_family
@pytest.mark.parametrize(
    ('writer', 'prefix'), [*((writer, None) for writer in WRITERS), ('runner', 'backbone.'), ('bare', 'backbone')]
)
def test_a_classifier_into_a_detector(family: Family, writer: str, prefix: str | None, tmp_path: Path) -> None:
    """A fixed network with one output into one with two, whose norms the file may lack."""
    arch = family.space.largest()
    source = randomised(MODELS.build(classifier(family)))
    cut = source.backbone.extract(arch)
    source.backbone = cut
    init = dict(type='Pretrained', checkpoint=WRITERS[writer](source, tmp_path / 'w.pth'))
    cfg = retinanet(family)
    cfg.backbone.pop('space')
    cfg.backbone.update(arch=arch.to_dict(), init_cfg=init if prefix is None else dict(init, prefix=prefix))
    with DefaultScope.overwrite_default_scope('mmdet'):
        model = MODELS.build(cfg)
    model.init_weights()
    assert_same(model.backbone, cut.state_dict(), new=lambda name: True)
    # And back: what the classifier has no output for is left out.
    torch.save(model.state_dict(), tmp_path / 'detector.pth')
    back = fixed(family, arch)
    load_pretrained(back, tmp_path / 'detector.pth')
    assert_same(back, cut.state_dict())


@every_family
def test_a_supernet_gives_its_part_bit_for_bit(family: Family, tmp_path: Path, rng: Any) -> None:
    model = randomised(MODELS.build(classifier(family)))
    path = save(model, tmp_path / 'supernet.pth')
    for arch in (family.space.smallest(), family.space.largest(), family.space.sample(rng)):
        for out_indices in ((-1,), (0, -1)):
            backbone = fixed(family, arch, out_indices=out_indices, init_cfg=dict(type=PretrainedInit, checkpoint=path))
            backbone.init_weights()
            assert_same(backbone, model.backbone.extract(arch).state_dict(), new=lambda name: True)
    # A supernet gets the whole of it; what its space is called does not count.
    called = SearchSpace.from_dict(dict(family.space.to_dict(), name='other'))
    other = family.cls(space=called, **family.settings)
    load_pretrained(other, path)
    assert_same(other, model.backbone.state_dict())


@every_family
@pytest.mark.parametrize('name', ['weights.safetensors', 'weights.pth'])
def test_an_extracted_network(family: Family, name: str, tmp_path: Path) -> None:
    cfg = classifier(family)
    (tmp_path / 'config.py').write_text(f"default_scope = 'mmpretrain'\nmodel = {cfg!r}\n")
    model = randomised(MODELS.build(cfg))
    save(model, tmp_path / 'supernet.pth')
    arch = family.space.smallest()
    (tmp_path / 'arch.json').write_text(arch.to_json())
    files = [str(tmp_path / file) for file in ('config.py', 'supernet.pth', 'arch.json')]
    extract_subnet.main([*files, '--out', str(tmp_path / 'out'), '--pth'])
    for prefix in (None, 'backbone.'):
        init = dict(type='Pretrained', checkpoint=str(tmp_path / 'out' / name), prefix=prefix)
        backbone = fixed(family, str(tmp_path / 'out/arch.json'), out_indices=(0, -1), init_cfg=init)
        backbone.init_weights()
        assert_same(backbone, model.backbone.extract(arch).state_dict(), new=lambda name: True)
    assert_refused(fixed(family, family.space.largest()), tmp_path / 'out' / name, 'holds an architecture of')


def converted_autoformer(tmp_path: Path, *more: str) -> Path:
    family = VARIANTS['autoformer']
    (tmp_path / 'space.json').write_text(json.dumps(family.space.to_dict()))
    supernet = randomised(family.elastic(official=True))
    state = autoformer_weights.to_official({f'backbone.{k}': v for k, v in supernet.state_dict().items()})
    torch.save(dict(model=state), tmp_path / 'official.pth')
    target = tmp_path / 'ours.safetensors'
    autoformer_converter.main(
        [str(tmp_path / 'official.pth'), str(target), '--space', str(tmp_path / 'space.json'), *more]
    )
    return target


def test_converted_files_say_what_they_hold(tmp_path: Path) -> None:
    family, arch = VARIANTS['autoformer'], VARIANTS['autoformer'].space.smallest()
    path = converted_autoformer(tmp_path)
    load_pretrained(family.elastic(official=True), path)
    load_pretrained(fixed(family, arch, official=True, out_indices=(0, -1)), path)
    assert_refused(fixed(family, arch), path, 'holds weights for official=True, but the backbone has False')
    (tmp_path / 'arch.json').write_text(arch.to_json())
    path = converted_autoformer(tmp_path, '--arch', str(tmp_path / 'arch.json'))
    load_pretrained(fixed(family, arch), path)
    assert_refused(fixed(family, arch, official=True), path, 'holds weights for official=False')
    assert_refused(fixed(family, family.space.largest()), path, r'stages\[0\].embed_dim: 48 → 72')

    stages = [dict(embed_dim=32 * n, blocks=[dict(num_heads=n, mlp_ratio=2.0, window_size=3)] * n) for n in (1, 2)]
    source = randomised(VARIANTS['s3'].cls(arch=dict(family='s3', stages=stages)))
    state = s3_weights.to_official({f'backbone.{name}': tensor for name, tensor in source.state_dict().items()})
    torch.save(dict(model=state), tmp_path / 'S3.pth')
    s3_converter.main([str(tmp_path / 'S3.pth'), str(tmp_path / 's3.pth')])
    backbone = VARIANTS['s3'].cls(arch=str(tmp_path / 's3.arch.json'), out_indices=(0, 1))
    load_pretrained(backbone, tmp_path / 's3.pth')
    assert_same(backbone, source.state_dict(), new=lambda name: name.startswith('norm0.'))
    stages[1]['blocks'] = stages[1]['blocks'][:1]
    other = VARIANTS['s3'].cls(arch=dict(family='s3', stages=stages))
    assert_refused(other, tmp_path / 's3.pth', r'stages\[1\].blocks: 2 → 1 entries')


# positions


@pytest.mark.parametrize('family', SIZED.values(), ids=SIZED.keys())
@pytest.mark.parametrize(
    ('stored', 'wanted'),
    [((32, 32), (40, 56)), ((24, 40), (32, 32)), ((32, 72), (48, 48)), ((40, 24), (24, 40)), ((48, 48), (32, 72))],
)
def test_positions_of_another_image_size(
    family: Family, stored: tuple[int, int], wanted: tuple[int, int], tmp_path: Path
) -> None:
    """Those of the file are interpolated as the network that wrote it does for such images; no grid is mistaken."""
    model = randomised(family.elastic(img_size=stored)).eval()
    torch.save(model.state_dict(), tmp_path / 'supernet.pth')
    arch = family.space.smallest()
    model.set_arch(arch)
    torch.save(model.extract().state_dict(), tmp_path / 'fixed.pth')
    images = torch.randn(2, 3, *wanted)
    for name in ('supernet.pth', 'fixed.pth'):
        backbone = fixed(family, arch, img_size=wanted).eval()
        load_pretrained(backbone, tmp_path / name)
        with torch.no_grad():
            found, expected = backbone(images)[0], model(images)[0]
        torch.testing.assert_close(found, expected[:, : found.shape[1]], rtol=1e-4, atol=1e-5)
    whole = family.elastic(img_size=wanted).eval()
    load_pretrained(whole, tmp_path / 'supernet.pth')
    whole.set_arch(arch)
    with torch.no_grad():
        torch.testing.assert_close(whole(images)[0], expected, rtol=1e-4, atol=1e-5)


def test_positions_without_a_note(tmp_path: Path) -> None:
    """A square file is recognised; of another grid nothing is known, so that it is refused."""
    family = VARIANTS['autoformer']
    arch = family.space.smallest()
    for size, fits in (((48, 48), True), ((24, 40), False)):
        source = randomised(fixed(family, arch, img_size=size)).eval()
        torch.save(dict(source.state_dict()), tmp_path / 'w.pth')
        backbone = fixed(family, arch, img_size=64).eval()
        if fits:
            load_pretrained(backbone, tmp_path / 'w.pth')
            images = torch.randn(1, 3, 64, 64)
            torch.testing.assert_close(backbone(images), source(images), rtol=1e-4, atol=1e-5)
        else:
            assert_refused(
                backbone, tmp_path / 'w.pth', r'pos_embed of shape \(1, 16, 48\), but the model has \(1, 65, 48\)'
            )
    torch.save({**source.state_dict(), 'pos_embed': torch.zeros(3)}, tmp_path / 'w.pth')
    assert_refused(backbone, tmp_path / 'w.pth', r'pos_embed of shape \(3,\), but the model has \(1, 65, 48\)')


# what is refused


def deeper(arch: Arch) -> dict[str, Any]:
    data = arch.to_dict()
    blocks = next(stage['blocks'] for stage in reversed(data['stages']) if stage['blocks'])
    blocks.append(blocks[-1])
    return data


@every_family
def test_another_architecture_is_refused(family: Family, tmp_path: Path) -> None:
    small, large = family.space.smallest(), family.space.largest()
    for arch in (small, large):
        torch.save(randomised(fixed(family, arch)).state_dict(), tmp_path / f'{arch.digest()}.pth')
    own = family.space.family
    for held, wanted in ((small, large), (large, small), (small, deeper(small)), (large, deeper(large))):
        backbone = fixed(family, wanted)
        text = assert_refused(backbone, tmp_path / f'{held.digest()}.pth', 'holds an architecture of .*, but the back')
        assert f'{own} ({held.digest()})' in text and f'{own} ({backbone.arch.digest()}); ' in text
        first = 'resolution: ' if held.choices != backbone.arch.choices else 'stages['
        assert text.partition('); ')[2].startswith(first)
        assert ' → ' in text
    assert_refused(
        family.elastic(), tmp_path / f'{large.digest()}.pth', f'but the backbone is a supernet of {own}-test'
    )


@every_family
def test_another_space_is_refused(family: Family, tmp_path: Path) -> None:
    torch.save(randomised(family.elastic()).state_dict(), tmp_path / 'w.pth')
    data = family.space.to_dict()
    # Another one whose largest architecture is the same.
    place, last = next(
        (s, d) for s, d in reversed(list(enumerate(data['stages']))) if 'optional' in d or d['depth'][1:]
    )
    key = 'optional' if 'optional' in last else 'depth'
    last[key] = [] if key == 'optional' else last[key][-1:]
    other = family.cls(space=data, **family.settings)
    name = f'a supernet of {family.space.name}'
    became = r'\[\d(, \d)*\] → ' if key == 'optional' else r'\[\d(, \d)+\] → \[\d\]'
    message = rf'holds {name}, but the backbone is {name}; stages\[{place}\].{key}: {became}'
    assert_refused(other, tmp_path / 'w.pth', message)
    for change, _ in family.misfits:  # those that another network of the family could have
        arch = family.space.largest().to_dict()
        change(arch)
        backbone = fixed(family, arch)
        if len(arch['stages']) < len(data['stages']):
            assert_refused(backbone, tmp_path / 'w.pth', f'holds {name}, but the backbone is an architecture of ')
        elif _larger(backbone, family):
            assert_refused(backbone, tmp_path / 'w.pth', f'holds {name}, of which an architecture .* is not a part: ')


def _larger(backbone: ElasticBackbone, family: Family) -> bool:
    """Whether a network has something that the family's supernet lacks; NASViT's positions would be interpolated."""
    whole = family.elastic().state_dict()
    return any(
        name not in whole or any(a > b for a, b in zip(tensor.shape, whole[name].shape))
        for name, tensor in backbone.state_dict().items()
        if not name.endswith('attn.table')
    )


@every_family
def test_another_family_is_refused(family: Family, tmp_path: Path) -> None:
    others = [other for other in VARIANTS.values() if other.cls is not family.cls]
    torch.save(fixed(family, family.space.smallest()).state_dict(), tmp_path / 'fixed.pth')
    torch.save(family.elastic().state_dict(), tmp_path / 'supernet.pth')
    for other in others:
        mine, theirs = (f'a supernet of {f.space.name}' for f in (family, other))
        assert_refused(other.elastic(), tmp_path / 'supernet.pth', f'holds {mine}, but the backbone is {theirs}$')
        assert_refused(
            fixed(other, other.space.smallest()),
            tmp_path / 'supernet.pth',
            f'holds {mine}, but the backbone is an arch',
        )
        assert_refused(other.elastic(), tmp_path / 'fixed.pth', f'holds an architecture of {family.space.family} ')


def test_the_sentence_has_the_names_of_the_zoo(tmp_path: Path) -> None:
    with torch.device('meta'):
        models = AutoFormer(arch='autoformer-tiny'), AutoFormer(space='autoformer-base')
        tiny, supernet = (Note.of(model).to_json() for model in models)
        backbone = AutoFormer(arch='autoformer-small')
    path = tmp_path / 'w.pth'
    for note, message in (
        (tiny, r'holds autoformer-tiny, but the backbone is autoformer-small; stages\[0\].embed_dim: 192 → 384'),
        (supernet, 'holds a supernet of autoformer-base, of which autoformer-small is not a part: cls_token has shape'),
    ):
        torch.save(dict(state_dict=dict(cls_token=torch.ones(1)), meta=dict(vitnas=note)), path)
        with pytest.raises(CheckpointError, match=message):
            load_pretrained(backbone, path)


SETTINGS: dict[str, Any] = dict(
    patch_size=(8, 4), position=('absolute', 'none'), reach=(2, 1), rescale=(None, (3, 2.0)), official=(False, True),
    bias=('shared', 'per-window'), shortcut=(True, False), scaling=(False, True), private_token=(True, False),
    window_size=(3, 2), sr_ratios=((2, 1), (1, 1)),
)  # fmt: skip


@pytest.mark.parametrize('name', [name for name, family in VARIANTS.items() if family.cls.weight_settings])
def test_other_settings_are_refused(name: str, tmp_path: Path) -> None:
    """Weights under another setting would be cut or read wrongly, also where every shape fits."""
    family = VARIANTS[name]
    arch = family.space.smallest()
    torch.save(family.elastic().state_dict(), tmp_path / 'supernet.pth')
    torch.save(fixed(family, arch).state_dict(), tmp_path / 'fixed.pth')
    for name in set(family.cls.weight_settings) - {'superformer'}:  # of fixed networks alone: test_vitas.py
        own = family.elastic().settings[name]
        other = next(value for value in SETTINGS[name] if value != own)
        for make in (lambda **more: family.elastic(**more), lambda **more: fixed(family, arch, **more)):
            size = dict(img_size=16) if name == 'patch_size' and 'img_size' in family.settings else {}
            backbone = make(**{name: other}, **size)
            assert_refused(backbone, tmp_path / 'supernet.pth', f'holds weights for {name}=')
        assert_refused(backbone, tmp_path / 'fixed.pth', f'holds weights for {name}=')
    load_pretrained(fixed(family, arch), tmp_path / 'fixed.pth')


def test_settings_that_json_spells_otherwise(tmp_path: Path) -> None:
    family = VARIANTS['autoformer']
    source, backbone = randomised(family.elastic(rescale=(3, 2.0))), family.elastic(rescale=(3, 2.0))
    torch.save(source.state_dict(), tmp_path / 'w.pth')
    load_pretrained(backbone, tmp_path / 'w.pth')  # JSON makes a list of the pair
    assert_same(backbone, source.state_dict())


@every_family
def test_files_without_a_note(family: Family, tmp_path: Path) -> None:
    """As safetensors of others: what has just these names and shapes is loaded."""
    arch, path = family.space.smallest(), tmp_path / 'w.safetensors'
    source = randomised(fixed(family, arch))
    save_file({f'backbone.{name}': tensor for name, tensor in source.state_dict().items()}, path)
    backbone = fixed(family, arch, out_indices=(0, -1))
    load_pretrained(backbone, path)
    assert_same(backbone, source.state_dict(), new=lambda name: True)
    for other in (family.elastic(), fixed(family, family.space.largest()), fixed(family, deeper(arch))):
        assert_refused(other, path, r'does not fit the backbone, an? (architecture|supernet) of .*: \S')
    save_file(family.elastic().state_dict(), path)
    assert_refused(fixed(family, arch), path, 'does not fit the backbone, an architecture of .*')


@every_family
def test_damaged_files(family: Family, tmp_path: Path) -> None:
    arch, path = family.space.smallest(), tmp_path / 'w.pth'
    backbone, source = fixed(family, arch), randomised(fixed(family, arch))
    assert_refused(backbone, tmp_path / 'none.pth', 'there is no checkpoint file')
    data = Path(save(source, path)).read_bytes()
    path.write_bytes(data[: len(data) // 2])
    assert_refused(backbone, path, 'is damaged, or no checkpoint')
    name = next(iter(source.state_dict()))

    def state(**changes: Any) -> Any:
        state = get_state_dict(source)
        for key, value in changes.items():
            state.pop(name) if value is None else state.__setitem__(key if key == 'more' else name, value)
        return state

    unreadable = 'has a note of its backbone that cannot be read: '
    for content, message in (
        (dict(state_dict=state(weight=None)), f'it has no {name}$'),
        (dict(state_dict=state(more=torch.ones(1))), 'it has more, which the model lacks$'),
        (dict(state_dict=state(weight=torch.ones(1))), rf'it has {name} of shape \(1,\), but the model has \('),
        (dict(state_dict={'head.fc.weight': torch.ones(1)}), r'it has no .*; has no .* \(and \d+ more\)'),
        (dict(epoch=3), 'holds no weights'),
        *(
            (dict(state_dict=dict(state()), meta=dict(vitnas=note)), unreadable)
            for note in ('{"space"', '[]', 3, '{"space": {}, "settings": {}, "img_size": 1}')
        ),
    ):
        torch.save(content, path)
        assert_refused(backbone, path, message)
    torch.save(dict(state_dict=state()), path)
    assert_refused(backbone, path, 'it has no', prefix='neck.')
    for meta in (None, 'text', [], dict(epoch=1)):  # of others
        torch.save(dict(state_dict=dict(state()), meta=meta), path)
        load_pretrained(backbone, path)


def test_a_note_that_lies(tmp_path: Path) -> None:
    """The weights of a fixed network under a supernet's note, and the other way round."""
    family = VARIANTS['s3']
    large, path = family.space.largest(), tmp_path / 'w.pth'
    small = fixed(family, family.space.smallest())
    torch.save(dict(state_dict=dict(small.state_dict()), meta=dict(vitnas=Note.of(family.elastic()).to_json())), path)
    assert_refused(fixed(family, large), path, 'is not a part: the weights have no|too small')
    torch.save(dict(state_dict=dict(family.elastic().state_dict()), meta=dict(vitnas=Note.of(small).to_json())), path)
    assert_refused(small, path, 'does not fit the backbone')


# in a training


@every_family
def test_one_of_several_ways_to_initialise(family: Family, tmp_path: Path) -> None:
    """Pretrained weights come last, whatever their place; without them everything is as in mmengine."""
    source = randomised(fixed(family, family.space.smallest()))
    pretrained = dict(type='Pretrained', checkpoint=save(source, tmp_path / 'w.pth'))
    ones = dict(type='Constant', layer='LayerNorm', val=1.0, bias=5.0)
    for init in ([ones, pretrained], [pretrained, ones], (pretrained,)):
        backbone = fixed(family, family.space.smallest(), init_cfg=init)
        backbone.init_weights()
        assert_same(backbone, source.state_dict())
        assert backbone.is_init
    backbone = fixed(family, family.space.smallest(), init_cfg=ones)
    backbone.init_weights()
    norms = [module for module in backbone.modules() if isinstance(module, nn.LayerNorm)]
    assert norms and all((norm.bias == 5).all() for norm in norms)


def test_refused_where_the_model_is_initialised(tmp_path: Path) -> None:
    family = VARIANTS['s3']
    path = save(fixed(family, family.space.smallest()), tmp_path / 'w.pth')
    cfg = classifier(family)
    cfg['backbone'] = dict(backbone_cfg(family), init_cfg=dict(type='Pretrained', checkpoint=path))
    with pytest.raises(CheckpointError, match='but the backbone is a supernet of s3-test'):
        MODELS.build(cfg).init_weights()


def runner_config(work_dir: Path, checkpoint: str | None, epochs: int = 1, **more: Any) -> Config:
    cfg = supernet_config(work_dir, images=20, augment=False)
    cfg.train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=epochs, val_interval=100)
    cfg.experiment_name += f'_{len(more)}'
    cfg.model.head.in_channels = 'auto'
    cfg.visualizer = dict(type='Visualizer')
    if checkpoint is not None:
        cfg.model.backbone.pop('space')
        cfg.model.backbone.update(
            arch=VARIANTS['autoformer'].space.smallest().to_dict(),
            init_cfg=dict(type='Pretrained', checkpoint=checkpoint),
        )
    cfg.update(more)
    return cfg


def test_a_runner_initialises_once_and_resumes_what_it_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The supernet's runner writes the file; the one that resumes ends with the weights of the one before."""
    for name in ('dump_config', '_log_env'):  # which take longer than the training
        monkeypatch.setattr(Runner, name, lambda *args: None)
    Runner.from_cfg(runner_config(tmp_path / 'supernet', None)).train()
    supernet = str(tmp_path / 'supernet/epoch_1.pth')
    expected = VARIANTS['autoformer'].elastic()
    load_pretrained(expected, supernet)
    seen: list[State] = []

    def spy(backbone: ElasticBackbone, path: str, prefix: str | None = None) -> None:
        load_pretrained(backbone, path, prefix)
        seen.append({name: tensor.clone() for name, tensor in backbone.state_dict().items()})

    monkeypatch.setattr(module, 'load_pretrained', spy)
    runner = Runner.from_cfg(runner_config(tmp_path / 'fixed', supernet))
    runner.train()
    assert len(seen) == 1
    part = expected.extract(VARIANTS['autoformer'].space.smallest()).state_dict()
    assert all(torch.equal(tensor, part[name]) for name, tensor in seen[0].items())
    trained = runner.model.backbone.state_dict()
    assert not torch.equal(trained['blocks.0.fc1.weight'], part['blocks.0.fc1.weight'])
    again = Runner.from_cfg(runner_config(tmp_path / 'fixed', supernet, resume=True))
    again.train()  # the epoch is over
    assert again.epoch == 1
    assert_same(again.model.backbone, trained)
