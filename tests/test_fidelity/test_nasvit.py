"""NASViT against the published code: outputs, features, batch-norm statistics, gradients, costs, and whole networks."""

import re
import zlib
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor

from tests.reference import ROOT, read
from vitnas_core.backbones import NASViT
from vitnas_core.elastic import WindowTables
from vitnas_core.evaluation import recalibrate
from vitnas_core.families.nasvit.arch import TransformerChoices
from vitnas_core.families.nasvit.layers import TransformerLayer
from vitnas_core.families.nasvit.weights import plain_names, to_official, to_vitnas
from vitnas_core.spaces import Arch, SearchSpace
from vitnas_core.utils.counting import count_macs, count_params
from vitnas_core.zoo import load_space

FOLDER = ROOT / 'nasvit'
DATA, ALL_COUNTS, FULL = (read('nasvit', name) for name in ('cases', 'counts', 'fullsize'))
CASES: dict[str, dict[str, Any]] = DATA['cases']
COUNTS: dict[str, dict[str, Any]] = ALL_COUNTS['archs']
TOLERANCE = 1e-5
TRANSFORMERS = 3
"""The first stage with transformer layers."""


def as_arch(data: dict[str, Any], stages: list[dict[str, Any]]) -> Arch:
    """An architecture of the fixtures; strides and squeeze-excitation are those of the space's stages."""
    built: list[dict[str, Any]] = [dict(width=data['width'][0], blocks=[])]
    for i, stage in enumerate(stages):
        own = {name: data[name][i] for name in ('kernel_size', 'expand_ratio')}
        own |= dict(width=data['width'][i + 1], stride=stage['stride'], se=int(stage['squeeze_excite']))
        own |= dict(mlp_ratio=1, num_windows=1) if i >= TRANSFORMERS else {}
        built.append(own | dict(blocks=[{}] * data['depth'][i]))
    built.append(dict(width=data['width'][-1], expand_ratio=6, blocks=[]))
    return Arch.from_dict(dict(family='nasvit', resolution=data['resolution'], stages=built))


def small_space() -> SearchSpace:
    """That of the reduced supernet."""
    data = DATA['settings']['search_space']
    stages: list[dict[str, Any]] = [dict(width=data['stem_widths'])]
    for i, row in enumerate(data['stages']):
        stage = dict(
            width=row['widths'],
            depth=row['depths'],
            kernel_size=row['kernel_sizes'],
            expand_ratio=row['expand_ratios'],
            stride=[row['stride']],
            se=[int(row['squeeze_excite'])],
        )
        stages.append(stage | (dict(mlp_ratio=[1], num_windows=[1]) if i >= TRANSFORMERS else {}))
    stages.append(dict(width=data['head_widths'], expand_ratio=[6]))
    return SearchSpace.from_dict(dict(family='nasvit', resolution=data['resolutions'], stages=stages))


def small_arch(case: str) -> Arch:
    return as_arch(CASES[case]['arch'], DATA['settings']['search_space']['stages'])


STAGES = ALL_COUNTS['search_space']['stages']
"""Of the published space."""


@cache
def weights() -> dict[str, Tensor]:
    """The reduced supernet in our layout."""
    return to_vitnas(load_file(FOLDER / 'weights.safetensors'), small_space())


def backbone_of(state: dict[str, Tensor], space: SearchSpace, **settings: Any) -> NASViT:
    model = NASViT(space=space, official=True, **settings)
    model.load_state_dict(
        {
            name.removeprefix('backbone.'): tensor
            for name, tensor in state.items()
            if name.startswith('backbone.') and not (settings.get('out_indices') and '.mbpool.' in name)
        }
    )
    return model.eval()


def supernet(**settings: Any) -> NASViT:
    """The reduced supernet with its weights, in the test mode."""
    return backbone_of(weights(), small_space(), **settings)


def images() -> Tensor:
    return torch.from_numpy(np.load(FOLDER / 'inputs.npy'))


def logits(model: NASViT, x: Tensor, state: dict[str, Tensor]) -> Tensor:
    features = model(x)[0].flatten(1)
    return F.linear(features, state['head.fc.weight'][:, : features.shape[1]], state['head.fc.bias'])


def difference(ours: Tensor, name: str, file: str = 'outputs.npz') -> float:
    expected = torch.from_numpy(np.load(FOLDER / file)[name])
    assert ours.shape == expected.shape, name
    return ((ours - expected).abs().max() / expected.abs().max()).item()


@pytest.mark.parametrize('case', CASES)
@torch.no_grad()
def test_logits(case: str) -> None:
    """Running statistics, then those of the batch; the fixed network gives the same bits."""
    model, arch = supernet(), small_arch(case)
    model.set_arch(arch)
    assert difference(logits(model, images(), weights()), f'{case}.logits_eval') < TOLERANCE
    fixed = model.extract()
    assert torch.equal(fixed(images())[0], model(images())[0][:, : fixed.out_channels()[0]])
    assert difference(logits(model.train(), images(), weights()), f'{case}.logits_train_bn') < TOLERANCE


@pytest.mark.parametrize('case', CASES)
@torch.no_grad()
def test_features(case: str) -> None:
    """Maps of stem and stages, as dense tasks get them from images of the architecture's resolution."""
    model, arch = supernet(out_indices=tuple(range(8))), small_arch(case)
    model.set_arch(arch)
    whole = supernet()
    whole.set_arch(arch)
    x = whole._resize(images())
    assert difference(x[:, :, ::24, ::24], f'{case}.resized_input_sample') < TOLERANCE
    maps = model(x)
    for feature, name in zip(maps, ('stem', *(f'stage{i}' for i in range(1, 8))), strict=True):
        width = np.load(FOLDER / 'outputs.npz')[f'{case}.{name}_mean'].shape[1]
        assert not feature[:, width:].any()
        step = max(1, feature.shape[-1] // 4)
        assert difference(feature[:, :width, ::step, ::step], f'{case}.{name}_sample') < TOLERANCE
        assert difference(feature[:, :width].mean((2, 3)), f'{case}.{name}_mean') < TOLERANCE


@torch.no_grad()
def test_parts_of_a_layer() -> None:
    """What attention and MLPs get and give, in the order in which they run: the published mlp2 first."""
    about = DATA['layer_probe']
    model = supernet()
    model.set_arch(small_arch(about['case']))
    layer = next(layer for layer, number in numbered(model) if number == about['block_index'])
    seen: dict[str, Tensor] = {}
    for part, name in ((layer.attn, 'attention'), (layer.mlp1, 'mlp2'), (layer.mlp2, 'mlp1')):
        part.register_forward_hook(
            lambda m, args, out, name=name: seen.update({f'{name}_in': args[0], f'{name}_out': out})
        )
    model(images()[: len(np.load(FOLDER / 'outputs.npz')['layer_probe.attention_in'])])
    assert len(seen) == 6
    for name, found in seen.items():
        assert difference(found, f'layer_probe.{name}') < TOLERANCE, name


def numbered(model: NASViT) -> list[tuple[TransformerLayer, int]]:
    """Transformer layers with their numbers among all."""
    blocks = [block for stage in model.stage_blocks() for block in stage]
    return [(block, i) for i, block in enumerate(blocks) if isinstance(block, TransformerLayer)]


@pytest.mark.parametrize('case', DATA['windowed']['cases'])
@torch.no_grad()
def test_windows(case: str) -> None:
    """The published code's windows, which no released network uses: two by two, shifted, not masked."""
    about = DATA['windowed']['cases'][case]
    model = supernet()
    number = int(DATA['windowed']['key_prefix'].split('.')[1])
    layer = next(layer for layer, i in numbered(model) if i == number)
    width, side = about['channels'], about['size']
    choices = TransformerChoices(width, kernel_size=3, expand_ratio=1, stride=1, se=False, mlp_ratio=1, num_windows=4)
    layer.attn.proj.outputs.set(width)
    for axis, own in layer.widths(choices):
        axis.set(own)
    reach, slot = (layer.attn.table.shape[1] + 1) // 2, (about['stage_depth_index'], side * side % 8)
    x = torch.from_numpy(np.load(FOLDER / 'outputs.npz')[f'windowed.{case}_in'])
    out = layer(x.flatten(2).mT, (side, side), choices, reach, slot, WindowTables(x.device)).mT.unflatten(
        2, (side, side)
    )
    assert difference(out, f'windowed.{case}_out') < TOLERANCE


@torch.no_grad()
def test_statistics_after_a_step() -> None:
    about = read('nasvit', 'bn_after_train_forward')
    model, before = supernet().train(), weights()
    model.set_arch(small_arch(about['case']))
    model(images())
    after = {f'backbone.{name}': tensor for name, tensor in model.state_dict().items()}
    official = {theirs: ours for ours, theirs in plain_names(model)}
    for layer, expected in about['layers'].items():
        mean, var = (f'backbone.{official[f"{layer}.bn.running_{kind}"]}' for kind in ('mean', 'var'))
        assert after[mean].double().sum().item() == pytest.approx(expected['mean_sum'], rel=1e-4, abs=1e-5), layer
        assert after[var].double().sum().item() == pytest.approx(expected['var_sum'], rel=1e-4), layer
        assert (after[mean] != before[mean]).sum() == expected['changed'] and len(after[mean]) == expected['size']


@torch.no_grad()
def test_recalibration() -> None:
    """As published: the mean of the batches' statistics."""
    about, model = DATA['calibration'], supernet()
    model.set_arch(small_arch(about['case']))
    parts = [slice(*map(int, re.fullmatch(r'inputs\[(\d+):(\d+)\]', text).groups())) for text in about['batches']]
    recalibrate(model, model, [images()[part] for part in parts], average=True)
    norm = model.stage_blocks()[1][0].depthwise_bn
    for kind in ('mean', 'var'):
        expected = np.load(FOLDER / 'outputs.npz')[f'calibration.first_block_depthwise_running_{kind}']
        found = getattr(norm, f'running_{kind}')[: len(expected)]
        assert difference(found, f'calibration.first_block_depthwise_running_{kind}') < TOLERANCE
    assert difference(logits(model, images(), weights()), 'calibration.logits') < TOLERANCE
    fixed = model.extract()  # carries them
    assert difference(logits(fixed, images(), weights()), 'calibration.logits') < TOLERANCE


def official_gradients(model: NASViT, head: dict[str, Tensor]) -> dict[str, Tensor]:
    """Gradients in the published layout."""
    state = {name: torch.zeros_like(tensor) for name, tensor in weights().items()}
    zeros = to_official(state, small_space())
    state |= {f'backbone.{name}': p.grad for name, p in model.named_parameters() if p.grad is not None}
    state |= {name: tensor.grad for name, tensor in head.items() if tensor.grad is not None}
    return {name: tensor - zeros[name] for name, tensor in to_official(state, small_space()).items()}


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
def test_gradients(dtype: torch.dtype) -> None:
    about = read('nasvit', 'grads')
    model = supernet().to(dtype).train()
    model.set_arch(small_arch(about['case']))
    head = {name: weights()[name].clone().to(dtype).requires_grad_() for name in ('head.fc.weight', 'head.fc.bias')}
    loss = F.cross_entropy(logits(model, images().to(dtype), head), torch.tensor(about['labels']))
    loss.backward()
    kind = 'f32' if dtype == torch.float32 else 'f64'
    assert loss.item() == pytest.approx(about[f'loss_{kind}'], rel=1e-5)
    found = official_gradients(model, head)
    compared = 0
    for name, expected in about['parameters'].items():
        if expected[f'norm_{kind}'] is None:
            assert not found[name].any(), name
            continue
        norm, total = found[name].double().norm().item(), found[name].double().sum().item()
        assert norm == pytest.approx(expected[f'norm_{kind}'], rel=1e-3, abs=1e-6), name
        assert total == pytest.approx(expected[f'sum_{kind}'], rel=1e-3, abs=1e-3 * norm + 1e-6), name
        compared += 1
    assert compared


@pytest.mark.parametrize('name', COUNTS)
def test_costs(name: str) -> None:
    expected = COUNTS[name]
    cost = NASViT.cost(as_arch(expected['arch'], STAGES), num_classes=1000)
    assert cost.params == expected['params_active']
    assert cost.macs == round(1e6 * expected['flop_counter_half_M'])


@pytest.mark.parametrize('end', [min, max])
def test_costs_are_those_of_the_built_network(end: Callable[..., dict[str, Any]]) -> None:
    expected = end(COUNTS.values(), key=lambda row: row['params_active'])
    fixed = NASViT(arch=as_arch(expected['arch'], STAGES)).eval()
    classes = 1000 * (fixed.out_channels()[0] + 1)
    assert count_params(fixed) + classes == expected['params_active']
    macs = count_macs(fixed, torch.zeros(1, 3, 224, 224)) + 1000 * fixed.out_channels()[0]
    assert macs == round(1e6 * expected['flop_counter_half_M'])


def test_costs_of_table_13() -> None:
    """Every column at every resolution, with what it leaves open."""
    for column in ALL_COUNTS['table13'].values():
        for resolution, fourth, fifth, macs in column['rows']:
            data = {**column['arch_with_e4_e5_set_to_4'], 'resolution': resolution}
            ratios = data['expand_ratio']
            arch = as_arch({**data, 'expand_ratio': [*ratios[:3], fourth, fifth, *ratios[5:]]}, STAGES)
            assert NASViT.cost(arch, num_classes=1000).macs / 1e6 == pytest.approx(macs, abs=5.1e-4)


def test_published_operators_stay_in_the_space() -> None:
    data, space = read('nasvit', 'sampling'), load_space('nasvit')
    archs = [as_arch(arch, STAGES) for name in ('samples', 'mutations', 'crossovers') for arch in data[name]]
    assert archs and all(arch in space for arch in archs)


def fill(keys: dict[str, list[int]], seed: int) -> dict[str, Tensor]:
    """Weights by the rule of the facts."""
    state = {}
    for name, shape in keys.items():
        if name.endswith(('relative_position_index', 'num_batches_tracked')) or '.bn_tracking.' in name:
            continue
        z = np.random.RandomState((zlib.crc32(name.encode()) + seed) % 2**32).standard_normal(shape)
        last = name.rpartition('.')[2]
        if last in ('rescale_mlp', 'rescale_attn'):
            z = (1 + 0.5 * z) * (shape[-1] / 8) * 0.5
        elif last == 'rescale':
            z = 1 + 0.5 * z
        elif last == 'relative_position_bias_table':
            z = 2 * z
        elif last in ('running_mean', 'bias'):
            z = 0.1 * z
        elif last == 'running_var':
            z = 1 + 0.5 * np.tanh(z)
        elif len(shape) == 1:
            z = 1 + 0.3 * np.tanh(z)
        else:
            z = z / np.sqrt(np.prod(shape[1:]))
        state[name] = torch.from_numpy(z.astype(np.float32))
    return state


def full_images() -> Tensor:
    batch, height, width = map(int, re.search(r'shape \((\d+),3,(\d+),(\d+)\)', FULL['about']).groups())
    random = np.random.RandomState(FULL['input_seed'])
    x = 0.5 * random.standard_normal((batch, 3, height, width))
    if height % 16 == width % 16 == 0:
        x += random.standard_normal((batch, 3, height // 16, width // 16)).repeat(16, 2).repeat(16, 3)
    x *= 1 + 0.5 * np.arange(batch)[:, None, None, None]
    x += 0.25 * np.arange(3)[:, None, None]
    return torch.from_numpy(x.astype(np.float32))


@pytest.fixture(scope='module')
def full_state() -> dict[str, Tensor]:
    state = fill(read('nasvit', 'official_keys')['keys'], FULL['fill_seed'])
    for name, expected in FULL['fill_first_values'].items():
        assert state[name].flatten()[: len(expected)].tolist() == pytest.approx(expected, rel=1e-6)
    return state


@torch.no_grad()
def test_full_size(full_state: dict[str, Tensor]) -> None:
    space = load_space('nasvit')
    state = to_vitnas(full_state, space)
    model, x = backbone_of(state, space), full_images()
    assert x.double().sum().item() == pytest.approx(FULL['input_sum'], rel=1e-6)
    for case, about in FULL['cases'].items():
        model.set_arch(as_arch(about['arch'], STAGES))
        assert difference(logits(model, x, state), f'{case}.logits_eval', 'fullsize_outputs.npz') < TOLERANCE, case


def test_both_ways(full_state: dict[str, Tensor]) -> None:
    """Every published tensor is there again; those that the network reads have the same bits."""
    keys, space = read('nasvit', 'official_keys')['keys'], load_space('nasvit')
    ours = to_vitnas(full_state, space)
    back = to_official(ours, space)
    assert {name: list(tensor.shape) for name, tensor in back.items()} == keys
    again = to_vitnas(back, space)
    assert again.keys() == ours.keys() and all(torch.equal(again[name], ours[name]) for name in ours)
    unread = ('rescale', 'rescale_attn', 'rescale_mlp', 'relative_position_bias_table', 'num_batches_tracked')
    for name, tensor in full_state.items():
        if not name.endswith(unread) and 'shortcut' not in name:
            assert torch.equal(back[name], tensor), name
