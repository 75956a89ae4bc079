"""Contracts of every searchable backbone; a new family needs only its entry in tests/families.py."""

import copy
import io
import json
import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from mmengine.config import Config
from torch import nn

from tests.families import VARIANTS, Family
from vitnas_core import backbones, zoo
from vitnas_core.backbones.pretrained import Note, channel_axes
from vitnas_core.elastic import cut
from vitnas_core.errors import ArchError, VitnasError
from vitnas_core.registry import MODELS
from vitnas_core.spaces import Arch, ChoiceSpace, SearchSpace
from vitnas_core.utils.counting import count_macs, count_params

every_family = pytest.mark.parametrize('family', VARIANTS.values(), ids=VARIANTS.keys())
DRAWS = 6


def images(family: Family, height: int | None = None, width: int | None = None) -> torch.Tensor:
    return torch.randn(2, 3, height or family.image, width or family.image)


def draws(family: Family, rng: np.random.Generator) -> list[Arch]:
    space = family.space
    return [space.largest(), space.smallest(), *(space.sample(rng) for _ in range(DRAWS))]


def test_every_registered_backbone_is_covered() -> None:
    MODELS.import_from_location()
    registered = {c for c in MODELS.module_dict.values() if issubclass(c, backbones.ElasticBackbone)}
    assert registered == {family.cls for family in VARIANTS.values()} == set(backbones.FAMILIES.values())


@every_family
def test_features_square_and_not(family: Family, rng: np.random.Generator) -> None:
    model = family.elastic()
    for arch in draws(family, rng):
        model.set_arch(arch)
        assert model.arch == arch
        for height, width in ((family.image, family.image), (family.image * 2, family.image), (37, 51)):
            (features,) = model(images(family, height, width))
            expected = (-(-height // family.stride), -(-width // family.stride))
            assert features.shape == (2, *model.out_channels(), *expected)
            assert features.isfinite().all()


@every_family
def test_inactive_channels_are_zero(family: Family) -> None:
    model = family.elastic()
    model.set_arch(family.space.smallest())
    (features,) = model(images(family))
    active = features.abs().sum((0, 2, 3)) > 0
    (full,), (width,) = model.out_channels(), model.out_channels(family.space.smallest())
    assert width < full
    assert active.sum() == width
    assert torch.equal(active, model.out_masks(family.space.smallest())[0])


@every_family
def test_backward_reaches_what_is_active_and_nothing_else(family: Family, rng: np.random.Generator) -> None:
    model = family.elastic()
    for arch in draws(family, rng):
        model.zero_grad(set_to_none=True)
        model.set_arch(arch)
        model(images(family))[-1].square().sum().backward()
        fixed = {name: p.shape for name, p in model.extract().named_parameters()}
        for name, parameter in model.named_parameters():
            if name not in fixed:
                assert parameter.grad is None, name
                continue
            assert parameter.grad is not None, name
            assert parameter.grad.isfinite().all()
            entries = torch.arange(parameter.numel()).view(parameter.shape)
            inside = cut(entries, fixed[name], channel_axes(model).get(name, ())).flatten()
            assert not parameter.grad.flatten().index_fill(0, inside, 0.0).any(), name


@every_family
def test_extract_is_bit_exact(family: Family, rng: np.random.Generator) -> None:
    model = family.elastic()
    _randomise(model)
    for arch in draws(family, rng):
        model.set_arch(arch)
        fixed = model.train().extract(arch)
        assert fixed.training and not model.eval().extract(arch).training
        assert fixed.space.size() == 1
        assert fixed.out_channels() == model.out_channels(arch)
        assert fixed.arch == arch
        for training in (False, True):
            model.train(training)
            fixed.train(training)
            for x in (images(family), images(family, 40, 72)):
                (ours,), (theirs,), (mask,) = model(x), fixed(x), model.out_masks(arch)
                assert torch.equal(ours[:, mask], theirs)
                assert not ours[:, ~mask].any()


@every_family
def test_extract_keeps_types_and_what_is_frozen_and_draws_nothing(family: Family) -> None:
    model, x = family.elastic().double().eval(), images(family).double()
    next(model.parameters()).requires_grad_(False)
    _randomise(model)
    model.set_arch(family.space.smallest())
    state = torch.get_rng_state()
    fixed = model.extract()
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(fixed(x)[0], model(x)[0][:, model.out_masks(model.arch)[0]])
    frozen = [name for name, parameter in fixed.named_parameters() if not parameter.requires_grad]
    assert frozen == [next(iter(dict(model.named_parameters())))]


@every_family
def test_extracted_gradients_are_those_of_the_supernet(family: Family, rng: np.random.Generator) -> None:
    model, arch = family.elastic(), family.space.sample(rng)
    model.set_arch(arch)
    fixed, x = model.extract(), images(family)
    model(x)[-1].square().sum().backward()
    fixed(x)[-1].square().sum().backward()
    for name, parameter in fixed.named_parameters():
        grad = dict(model.named_parameters())[name].grad
        assert grad is not None and parameter.grad is not None
        part = cut(grad, parameter.shape, channel_axes(model).get(name, ()))
        torch.testing.assert_close(part, parameter.grad, rtol=1e-4, atol=1e-5 * float(parameter.grad.abs().max()))


@every_family
def test_extract_shares_nothing(family: Family) -> None:
    model = family.elastic()
    fixed = model.extract(family.space.smallest())
    before = fixed(x := images(family))[-1]
    _randomise(model)
    assert torch.equal(fixed(x)[-1], before)
    assert model.arch == family.space.largest()


@every_family
def test_set_arch_allocates_no_parameter(family: Family, rng: np.random.Generator) -> None:
    model = family.elastic()
    before = [(name, id(p), p.data_ptr()) for name, p in model.named_parameters()]
    for arch in draws(family, rng):
        model.set_arch(arch)
        model(images(family))
    assert [(name, id(p), p.data_ptr()) for name, p in model.named_parameters()] == before


@every_family
def test_switching_back_gives_the_same(family: Family, rng: np.random.Generator) -> None:
    model, x = family.elastic().eval(), images(family)
    a, b = family.space.largest(), family.space.smallest()
    model.set_arch(a)
    first = model(x)[-1]
    model.set_arch(b)
    assert not torch.equal(model(x)[-1], first)
    model.set_arch(a)
    assert torch.equal(model(x)[-1], first)


@every_family
@pytest.mark.parametrize('size', [(32, 32), (40, 72)])
def test_cost_equals_a_real_count(family: Family, rng: np.random.Generator, size: tuple[int, int]) -> None:
    for arch in draws(family, rng):
        fixed = family.cls(arch=arch, **family.settings).eval()
        counted = family.cls(arch=arch, **{**family.settings, **family.countable}).eval()
        cost = fixed.price(arch, size)
        assert cost.params == count_params(fixed)
        assert cost.macs == count_macs(counted, images(family, *size)[:1])
        with_head = fixed.price(arch, size, num_classes=7)
        head = nn.Linear(fixed.out_channels()[-1], 7)
        assert with_head.params - cost.params == count_params(head)
        assert with_head.macs - cost.macs == head.weight.numel()


@every_family
def test_state_dict_round_trip_deepcopy_and_save(family: Family) -> None:
    model, x = family.elastic().eval(), images(family)
    _randomise(model)
    model.set_arch(family.space.smallest())
    expected = model(x)[-1]
    other = family.elastic().eval()
    other.load_state_dict(model.state_dict())
    other.set_arch(model.arch)
    assert torch.equal(other(x)[-1], expected)
    assert torch.equal(copy.deepcopy(model)(x)[-1], expected)
    assert torch.equal(pickle.loads(pickle.dumps(model))(x)[-1], expected)  # as spawned workers get it
    buffer = io.BytesIO()
    torch.save(model.state_dict(), buffer)
    buffer.seek(0)
    loaded = torch.load(buffer, weights_only=True)
    assert loaded.keys() == model.state_dict().keys()
    assert all(torch.equal(loaded[k], v) for k, v in model.state_dict().items())


@every_family
def test_a_state_dict_says_what_it_holds(family: Family) -> None:
    """A note in its metadata, wherever the backbone is in a model; nobody else sees it."""
    for model in (family.elastic(), family.elastic().extract(family.space.smallest())):
        whole = nn.ModuleDict(dict(a=nn.ModuleDict(dict(backbone=model)), head=nn.Linear(2, 2)))
        for state, place in ((model.state_dict(), ''), (whole.state_dict(), 'a.backbone')):
            buffer = io.BytesIO()
            torch.save(state, buffer)
            buffer.seek(0)
            notes = [m for m in torch.load(buffer, weights_only=True)._metadata.items() if 'vitnas' in m[1]]
            assert [where for where, _ in notes] == [place] and notes[0][1]['vitnas'] == Note.of(model).to_json()
        note = json.loads(Note.of(model).to_json())
        assert SearchSpace.from_dict(note['space']) == model.space
        shared = set(model.supernet_settings) & model.settings.keys() if model.space.size() > 1 else set()
        assert note['settings'].keys() == {*model.weight_settings, *shared} <= model.settings.keys()
        whole.load_state_dict(whole.state_dict())
        assert not any('vitnas' in name for name in state)


@every_family
def test_eval_is_deterministic_and_training_regularises(family: Family) -> None:
    x = images(family)
    for settings in ({}, *family.regularisers):
        model = family.elastic(**settings).eval()
        assert torch.equal(model(x)[-1], model(x)[-1])
        model.train()
        assert torch.equal(model(x)[-1], model(x)[-1]) == (not settings)


@every_family
def test_autocast_runs_in_bfloat16(family: Family) -> None:
    model, x = family.elastic(), images(family)
    expected = model(x)[-1]
    with torch.autocast('cpu', torch.bfloat16):
        out = model(x)[-1]
    out.float().sum().backward()
    used, named = dict(model.extract().named_parameters()), dict(model.named_parameters())
    assert all((grad := named[name].grad) is not None and grad.isfinite().all() for name in used)
    torch.testing.assert_close(out.float(), expected, rtol=0.1, atol=0.15)


@every_family
def test_fixed_network_exports(family: Family) -> None:
    fixed, x = family.elastic().extract(family.space.smallest()).eval(), images(family)
    program = torch.export.export(fixed, (x,))
    torch.testing.assert_close(program.module()(x)[0], fixed(x)[0])
    torch.testing.assert_close(torch.jit.trace(fixed, x)(x)[0], fixed(x)[0])


@every_family
def test_several_outputs(family: Family) -> None:
    model = family.elastic(out_indices=(0, -1))
    for arch in (family.space.largest(), family.space.smallest()):
        model.set_arch(arch)
        for height, width in ((family.image, family.image), (37, 51)):
            features = model(images(family, height, width))
            assert len(features) == len(model.out_strides()) == len(model.out_channels()) == 2
            for feature, stride, channels in zip(features, model.out_strides(), model.out_channels()):
                assert feature.shape == (2, channels, -(-height // stride), -(-width // stride))
                assert feature.is_contiguous()  # mmcv's RoIAlign reads memory in this order whatever the strides
    assert model.out_strides()[-1] == family.stride
    assert model.extract().out_strides() == model.out_strides()


@every_family
def test_mistakes_are_answered(family: Family) -> None:
    cls, name = family.cls, family.cls.__name__
    with pytest.raises(VitnasError, match=f'{name} should be given either `arch` or `space`'):
        cls()
    with pytest.raises(VitnasError, match='either `arch` or `space`'):
        cls(arch=family.space.largest(), space=family.space)
    with pytest.raises(VitnasError, match=f'{name} should be given {cls.family}, but got toy'):
        cls(space=SearchSpace.from_dict(dict(family='toy', stages=[dict(width=3)])))
    with pytest.raises(ArchError, match='neither a file nor an architecture of the zoo'):
        cls(arch='no-such-name')
    with pytest.raises(VitnasError, match='`out_indices` should be from'):
        family.elastic(out_indices=(99,))
    for price in (cls.cost, family.elastic().set_arch):
        with pytest.raises(ArchError, match='toy'):
            price(dict(family='toy', stages=[]))


@every_family
def test_what_does_not_fit_is_refused_with_its_path_and_file(family: Family, tmp_path) -> None:
    model = family.elastic()
    assert family.misfits
    for change, message in family.misfits:
        data = family.space.largest().to_dict()
        change(data)
        (tmp_path / 'arch.json').write_text(json.dumps(data))
        for refuse in (model.set_arch, model.extract):
            with pytest.raises(ArchError) as err:
                refuse(data)
            assert str(err.value).startswith(message)
            with pytest.raises(ArchError, match=r'arch\.json\)$'):
                refuse(tmp_path / 'arch.json')
    assert model.arch == family.space.largest()


@every_family
def test_architectures_from_configs_and_numpy(family: Family, rng: np.random.Generator) -> None:
    """Config objects, lists and numpy numbers are as good as plain data, in the cost too."""
    plain = family.space.sample(rng)
    config = Config(dict(arch=plain.to_dict())).arch
    assert zoo.load_arch(config) == plain
    as_numpy = json.loads(plain.to_json(), parse_int=np.int64, parse_float=lambda text: np.float64(text))
    assert zoo.load_arch(as_numpy) == plain
    spelled = json.loads(plain.to_json(), parse_int=float)  # 3 as 3.0
    cost = family.cls.cost(plain, family.image)
    for other in (config, as_numpy, spelled):
        found = family.cls.cost(other, np.int64(family.image))
        assert found == cost
        assert (type(found.params), type(found.macs)) == (int, int)


@every_family
def test_whole_numbers_may_be_written_as_floats(family: Family) -> None:
    def spelled(grammar: ChoiceSpace) -> ChoiceSpace:
        return ChoiceSpace(
            tuple((name, tuple(v if isinstance(v, str) else float(v) for v in vs)) for name, vs in grammar.options)
        )

    stages = [
        replace(s, choices=spelled(s.choices), blocks=tuple(b and spelled(b) for b in s.blocks))
        for s in family.space.stages
    ]
    space = replace(family.space, stages=tuple(stages), choices=spelled(family.space.choices))
    model, plain = family.cls(space=space, **family.settings), family.elastic()
    arch = json.loads(family.space.smallest().to_json(), parse_int=float)
    for other, expected in ((model, plain), (model.extract(arch), plain.extract(arch)), (fixed(family, arch), None)):
        expected = expected or fixed(family, family.space.smallest())
        shapes = [{name: w.shape for name, w in network.state_dict().items()} for network in (other, expected)]
        assert shapes[0] == shapes[1]
        other(images(family))


@every_family
def test_spaces_list_the_smallest_network_first(family: Family) -> None:
    """Also where a choice sizes no weights: the largest architecture of a space is what it says."""
    stage_kinds = [
        (s, stage, family.cls.schema.stage_type(len(family.space.stages), s, stage.choices))
        for s, stage in enumerate(family.space.stages)
    ]
    for s, stage, kind in stage_kinds:
        blocks = [(stage.blocks[0], family.cls.schema.block)] if stage.blocks else []
        for grammar, record in [(stage.choices, kind), *blocks]:
            for name, values in grammar.options:
                if len(values) == 1 or not record.choices[name].ascending:
                    continue
                turned = ChoiceSpace(tuple((n, v[::-1] if n == name else v) for n, v in grammar.options))
                changed = (
                    replace(stage, choices=turned)
                    if grammar is stage.choices
                    else replace(stage, blocks=(turned, *stage.blocks[1:]))
                )
                space = replace(family.space, stages=(*family.space.stages[:s], changed, *family.space.stages[s + 1 :]))
                with pytest.raises(VitnasError, match=f'{name}.*smallest first'):
                    family.cls(space=space, **family.settings)


def fixed(family: Family, arch: object) -> backbones.ElasticBackbone:
    return family.cls(arch=arch, **family.settings)


def _randomise(model: nn.Module) -> None:
    """Move every parameter off its initial value, so that zeros and ones hide nothing."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
