"""ViTAS's DeiT space against the published code: paths from both ends, standalone networks, gradients, costs."""

import json
import zlib
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

from tests.reference import ROOT, read
from vitnas_core.backbones import ViTASDeiT
from vitnas_core.elastic import influence_gap, shares
from vitnas_core.families.vitas.arch import DEIT as SCHEMA
from vitnas_core.families.vitas.arch import deit_block_costs
from vitnas_core.families.vitas.weights import deit_to_official, deit_to_vitnas
from vitnas_core.spaces import Arch, SearchSpace
from vitnas_core.utils.counting import count_params

FOLDER = ROOT / 'vitas'
DATA, PUBLISHED, GRADS = (read('vitas', name) for name in ('cases', 'published', 'grads'))
SHARING = read('vitas', 'channel_sharing')['groups']
OUTPUTS = np.load(FOLDER / 'outputs.npz')
SPACE, CASES, ALONE = DATA['space'], DATA['cases'], DATA['stand_alone']
TOLERANCE = 1e-5
# DeiT-Ti and -S, which the fixtures give by their figures alone.
DEIT = {
    f'deit_{size}_layout': dict(
        patch=16, embed=width, blocks=[dict(heads=width // 64, qkv_out=3 * width, mlp_hidden=4 * width)] * 12
    )
    for size, width in (('tiny', 192), ('small', 384))
}


def widths(most: int) -> list[int]:
    return [round(ratio * most) for ratio in SPACE['ratios']]


def as_arch(network: dict[str, Any], maxima: dict[str, int]) -> Arch:
    """An architecture of the fixtures, whose widths are ratios or numbers."""
    blocks = [
        None
        if block is None
        else dict(
            num_heads=block['heads'],
            qkv_dim=block.get('qkv_out') or round(block['qkv_ratio'] * maxima['qkv_out']),
            hidden_dim=block.get('mlp_hidden') or round(block['mlp_ratio_of_max'] * maxima['mlp_hidden']),
        )
        for block in network['blocks']
    ]
    stage = dict(embed_dim=network['embed'], blocks=blocks)
    return Arch.from_dict(dict(family='vitas_deit', patch_size=network['patch'], stages=[stage]))


def space() -> SearchSpace:
    block = dict(num_heads=SPACE['heads'], qkv_dim=widths(SPACE['qkv_out']), hidden_dim=widths(SPACE['mlp_hidden']))
    depth = SPACE['depth']
    stage = dict(embed_dim=widths(SPACE['embed']), depth=depth, optional=list(range(depth)), block=block)
    return SearchSpace.from_dict(
        dict(family='vitas_deit', patch_size=sorted(SPACE['patches'], reverse=True), stages=[stage])
    )


def published_macs(arch: Arch, side: int = 224, num_classes: int = 1000) -> int:
    """The release's count, which the paper prints: no class token, and a classifier that reads every other token."""
    network = SCHEMA.read(arch)
    (stage,), patch = network.stages, network.patch_size
    tokens = (side // patch) ** 2
    blocks = sum(count.macs for count in deit_block_costs(stage.blocks, stage.embed_dim, tokens))
    return tokens * stage.embed_dim * (3 * patch**2 + num_classes) + blocks


def load(model: ViTASDeiT, state: dict[str, torch.Tensor]) -> torch.nn.Linear:
    """Give a backbone published weights; return the head."""
    ours = deit_to_vitnas(state, model)
    model.load_state_dict({name.removeprefix('backbone.'): w for name, w in ours.items() if 'backbone' in name})
    head = torch.nn.Linear(model.embed_dims, SPACE['classes'])
    head.load_state_dict({name: ours[f'head.fc.{name}'] for name in ('weight', 'bias')})
    return head


def superformer(sharing: str = 'bilateral') -> tuple[ViTASDeiT, torch.nn.Linear]:
    model = ViTASDeiT(space=space(), img_size=SPACE['img'], official=True, sharing=sharing, out_type='cls_token').eval()
    return model, load(model, load_file(FOLDER / 'weights.safetensors'))


def images() -> torch.Tensor:
    return torch.from_numpy(np.load(FOLDER / 'inputs.npy'))


def fill(shapes: dict[str, list[int]], seed: int) -> dict[str, torch.Tensor]:
    """The deterministic rule by which the fixtures fill weights."""
    state = {}
    for name, shape in shapes.items():
        z = np.random.RandomState((zlib.crc32(name.encode()) + seed) % 2**32).standard_normal(shape)
        if name.endswith(('pos_embed', 'cls_token')):
            z = 0.5 * z
        elif name.endswith('bias'):
            z = 0.1 * z
        else:
            z = 1 + 0.3 * np.tanh(z) if len(shape) == 1 else z / np.sqrt(np.prod(shape[1:]))
        state[name] = torch.from_numpy(z.astype(np.float32))
    return state


def assert_close(ours: torch.Tensor, theirs: np.ndarray) -> None:
    expected = torch.from_numpy(theirs)
    torch.testing.assert_close(ours, expected, rtol=0, atol=TOLERANCE * float(expected.abs().max()))


@pytest.mark.parametrize('case', CASES)
@torch.no_grad()
def test_paths_from_both_ends(case: str) -> None:
    model, head = superformer()
    model.set_arch(as_arch(CASES[case]['arch'], SPACE))
    for side in model.pattern.each_side():
        assert_close(head(model(images())[0]), OUTPUTS[f'{case}.{side}'])


@pytest.mark.parametrize('case', [name.removesuffix('.none') for name in OUTPUTS if name.endswith('.none')])
@torch.no_grad()
def test_all_positions_without_a_side(case: str) -> None:
    model, head = superformer()
    model.set_arch(as_arch(CASES[case]['arch'], SPACE))
    model.last_position = False
    assert_close(head(model(images())[0]), OUTPUTS[f'{case}.none'])


@pytest.mark.parametrize('case', [name.removesuffix('.left_full_list') for name in OUTPUTS if 'full_list' in name])
@torch.no_grad()
def test_blocks_behind_an_identity_get_the_ratios_of_others_in_the_release(case: str) -> None:
    """Quirk 4: what the release computes is another architecture than it counts and retrains."""
    model, head = superformer()
    network = json.loads(json.dumps(CASES[case]['arch']))
    ratios = iter(CASES[case]['ratios_per_slot'][1:])
    for block in network['blocks']:
        if block is not None:
            block.update(qkv_ratio=next(ratios), mlp_ratio_of_max=next(ratios))
    model.set_arch(as_arch(network, SPACE))
    assert_close(head(model(images())[0]), OUTPUTS[f'{case}.left_full_list'])


@pytest.mark.parametrize('case', ALONE)
@torch.no_grad()
def test_networks_that_stand_alone(case: str) -> None:
    given = ALONE[case]
    arch = as_arch(given['arch'], SPACE)
    model = ViTASDeiT(arch=arch, img_size=SPACE['img'], official=True, out_type='cls_token').eval()
    state = fill(given['state_dict_shapes'], given['weight_seed'])
    head = load(model, state)
    assert_close(head(model(images())[0]), OUTPUTS[case])
    assert count_params(model) + count_params(head) == given['params']
    assert published_macs(arch, SPACE['img'], SPACE['classes']) == given['flops']


@pytest.mark.parametrize('mode', ['BCNet', 'AutoSlim'])
def test_gradients_of_a_training_step(mode: str) -> None:
    """BCNet: one loss on the sum of both sides' logits; AutoSlim: the first channels alone."""
    model, head = superformer('bilateral' if mode == 'BCNet' else 'ordinal')
    model.train()
    model.set_arch(as_arch(CASES[GRADS['case']]['arch'], SPACE))
    logits = F.linear(model(images())[0], head.weight, head.bias * len(model.pattern.sides))
    targets = torch.from_numpy(OUTPUTS['train_targets'])
    loss = -(targets * logits.log_softmax(-1)).sum(-1).mean()
    loss.backward()
    assert loss.item() == pytest.approx(GRADS[mode]['loss'], rel=1e-5)
    named = {f'backbone.{name}': p for name, p in model.named_parameters()}
    named |= {f'head.fc.{name}': p for name, p in head.named_parameters()}
    filled = {name: torch.zeros_like(p) if p.grad is None else p.grad for name, p in named.items()}
    grads = deit_to_official(filled, model)
    for name, norm in GRADS[mode]['l2'].items():
        assert float(grads[name].double().norm()) == pytest.approx(norm, rel=1e-3, abs=1e-6), name
    for name, count in GRADS[mode]['nonzero_elements'].items():
        found = int((grads[name] != 0).sum())
        # The biases of keys, half of these, have no gradient but rounding, which may be none in either.
        slack = count // 2 if '.attn.qk' in name and name.endswith('bias') else 0
        assert abs(found - count) <= slack, name


def test_the_published_layout_and_back() -> None:
    model, _ = superformer()
    state = load_file(FOLDER / 'weights.safetensors')
    back = deit_to_official(deit_to_vitnas(state, model), model)
    assert back.keys() == state.keys() == DATA['state_dict_shapes'].keys()
    assert all(torch.equal(back[name], tensor) for name, tensor in state.items())


@torch.no_grad()
def test_a_path_can_be_extracted_bit_for_bit() -> None:
    model, _ = superformer()
    for case in CASES.values():
        model.set_arch(as_arch(case['arch'], SPACE))
        for _ in model.pattern.each_side():
            (mask,) = model.out_masks(model.arch)
            assert torch.equal(model.extract()(images())[0], model(images())[0][:, mask])


@pytest.mark.parametrize('name', CASES)
def test_costs_of_paths(name: str) -> None:
    arch = as_arch(CASES[name]['arch'], SPACE)
    assert published_macs(arch, SPACE['img'], SPACE['classes']) == CASES[name]['flops']


@pytest.mark.parametrize('name', PUBLISHED)
def test_published_networks(name: str) -> None:
    """Parameters and the release's own count, of which its paper prints a rounded figure."""
    given = PUBLISHED[name]
    network = given.get('arch') or DEIT[name]
    arch = as_arch(network, {})
    assert ViTASDeiT.cost(arch, num_classes=1000).params == given['params']
    assert published_macs(arch) == given['flops']


@pytest.mark.parametrize('groups', SHARING)
def test_channel_sharing(groups: str) -> None:
    for pattern in ('ordinal', 'bilateral', 'cyclic'):
        given = SHARING[groups][pattern]
        given = given[0] if isinstance(given, list) else given
        assert influence_gap(pattern, int(groups)) == pytest.approx(given['G'])
        if pattern != 'cyclic':  # of which there are several equally good ones
            assert shares(pattern, int(groups)).sum(0).tolist() == given['times']
