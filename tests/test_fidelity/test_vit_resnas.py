"""ViT-Res against the published code: outputs of class and tokens, gradients, costs and resized positions."""

import re
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

from tests.reference import ROOT, read
from vitnas_core.backbones import ViTRes
from vitnas_core.elastic import importance_orders, masked_layer_norm
from vitnas_core.families.vit_res.weights import to_official, to_vitnas
from vitnas_core.spaces import Arch, SearchSpace
from vitnas_core.utils.counting import count_params
from vitnas_core.zoo import entry, load_space

FOLDER = ROOT / 'vit_resnas'
DATA = read('vit_resnas', 'cases')
CASES: dict[str, dict[str, Any]] = DATA['cases']
PUBLISHED, SPACES, GRADS = (read('vit_resnas', name) for name in ('published', 'spaces_and_macs', 'grads'))
HEAD_DIMS = [row['head_dim'] for row in DATA['space']['widths']]
CLASSES = DATA['space']['num_classes']
TOLERANCE = 1e-5


def as_arch(settings: dict[str, Any]) -> Arch:
    """An architecture of the fixtures; published ones do not say that their blocks exist."""
    stages = [
        dict(
            embed_dim=width,
            head_dim=head_dim,
            blocks=[dict(num_heads=b[0], hidden_dim=b[1]) if all(b[2:]) else None for b in blocks],
        )
        for width, head_dim, blocks in zip(settings['embed'], settings['head_dim'], settings['blocks'], strict=True)
    ]
    return Arch.from_dict(dict(family='vit_res', stages=stages))


def as_settings(network: list[Any]) -> dict[str, Any]:
    """The published tuple form of a network, as the fixtures write architectures."""
    settings: dict[str, Any] = dict(embed=[network[0][1]], head_dim=[], blocks=[[]])
    for kind, *rest in network[1:-1]:
        if kind == 3:
            settings['embed'].append(rest[1])
            settings['blocks'].append([])
        else:
            (_, heads, head_dim), (_, hidden), exists = rest
            settings['head_dim'] = settings['head_dim'][: len(settings['embed']) - 1] + [head_dim]
            settings['blocks'][-1].append([heads, hidden, exists])
    return settings


def weights() -> dict[str, torch.Tensor]:
    """The supernet's parameters in our layout."""
    return to_vitnas(load_file(FOLDER / 'weights.safetensors'), HEAD_DIMS)


def supernet(**settings: Any) -> ViTRes:
    """The supernet with its weights, in the test mode."""
    rows, pairs = DATA['space']['widths'], DATA['space']['pairs_per_stage']
    stages = [
        dict(
            embed_dim=sorted(row['embed']),
            head_dim=[row['head_dim']],
            depth=2 * pairs,
            optional=list(range(1, 2 * pairs, 2)),
            block=dict(num_heads=sorted(row['heads']), hidden_dim=sorted(row['ffn'])),
        )
        for row in rows
    ]
    space = SearchSpace.from_dict(dict(family='vit_res', stages=stages))
    model = ViTRes(space=space, **{'img_size': DATA['space']['img_size'], 'out_type': 'raw', **settings})
    own = {name.removeprefix('backbone.'): w for name, w in weights().items() if name.startswith('backbone.')}
    model.load_state_dict(own)
    return model.eval()


def images() -> torch.Tensor:
    return torch.from_numpy(np.load(FOLDER / 'inputs.npy'))


def logits(model: ViTRes, x: torch.Tensor, head: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Of the class and of every patch."""
    (tokens,) = model(x)
    classes = F.linear(tokens[:, 0], head['head.fc.weight'], head['head.fc.bias'])
    return classes, F.linear(tokens[:, 1:], head['head.token_fc.weight'], head['head.token_fc.bias'])


def assert_close(ours: torch.Tensor, name: str) -> None:
    expected = torch.from_numpy(np.load(FOLDER / 'outputs.npz')[name])
    assert ours.shape == expected.shape, name
    assert ((ours - expected).abs().max() / expected.abs().max()).item() < TOLERANCE, name


@pytest.mark.parametrize('name', CASES)
@torch.no_grad()
def test_outputs(name: str) -> None:
    model, head = supernet(), weights()
    model.set_arch(as_arch(CASES[name]['arch']))
    for found, kind in zip(logits(model, images(), head), ('class', 'token')):
        assert_close(found, f'{name}.{kind}_logits')
    fixed = model.extract()
    assert torch.equal(fixed(images())[0], model(images())[0][..., : fixed.embed_dims[-1]])


@pytest.mark.parametrize('name', CASES)
def test_costs(name: str) -> None:
    case = CASES[name]
    arch = as_arch(case['arch'])
    assert ViTRes.cost(arch, 224, CLASSES).macs == case['macs_224']
    token_head = CLASSES * (case['arch']['embed'][-1] + 1)
    side = DATA['space']['img_size']
    assert ViTRes.cost(arch, side, CLASSES, img_size=side).params + token_head == case['params_cut']


def mixed(model: ViTRes, way: str) -> None:
    """Split the batch of the fixtures among its architectures."""
    names = DATA['multi']['rows'][: DATA['multi']['num_archs']]
    assert DATA['multi']['rows'] == names * DATA['multi']['example_per_arch'] == GRADS['rows']
    model.set_archs([as_arch(CASES[name]['arch']) for name in names], way, interleaved=True)


def run_mixed(model: ViTRes, way: str, head: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits of the class and of every patch: in one pass, or one architecture after another."""
    if way != 'separate':
        mixed(model, way)
        return logits(model, images(), head)
    rows = GRADS['rows']
    parts, order = [], []
    for name in sorted(set(rows)):
        own = [i for i, row in enumerate(rows) if row == name]
        model.set_arch(as_arch(CASES[name]['arch']))
        parts.append(logits(model, images()[own], head))
        order += own
    back = torch.tensor(order).argsort()
    return torch.cat([part[0] for part in parts])[back], torch.cat([part[1] for part in parts])[back]


@pytest.mark.parametrize(
    ('way', 'norms'),
    [('separate', 'bn_frozen'), ('sliced', 'bn_frozen'), ('masked', 'bn_frozen')]
    + [('sliced', 'bn_batch_stats'), ('masked', 'bn_batch_stats')],
)
def test_mixed_batch(way: str, norms: str) -> None:
    """Outputs and gradients of a batch whose rows belong to different architectures."""
    model, state, expected = supernet(), weights(), GRADS[norms]
    model.train(norms == 'bn_batch_stats')
    head = {name: torch.nn.Parameter(state[name]) for name in state if name.startswith('head.')}
    found = run_mixed(model, way, head)
    for logit, kind in zip(found, ('class', 'token')):
        assert_close(logit, f'{"multi" if norms == "bn_frozen" else "multi_bn_batch_stats"}.{kind}_logits')
    arrays = np.load(FOLDER / 'outputs.npz')
    losses = [
        -(torch.from_numpy(arrays[f'multi.{kind}_targets']) * logit.log_softmax(-1)).sum(-1).mean()
        for logit, kind in zip(found, ('class', 'token'))
    ]
    sum(losses).backward()
    assert losses[0].item() == pytest.approx(expected['class_loss'], rel=TOLERANCE)
    assert losses[1].item() == pytest.approx(expected['token_loss'], rel=TOLERANCE)
    # A block that no row has gets no gradient here; there it gets zeros, from masks, or none.
    named = {
        f'backbone.{name}': torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        for name, parameter in model.named_parameters()
    }
    named |= {name: parameter.grad for name, parameter in head.items()}
    buffers = {f'backbone.{name}': buffer for name, buffer in model.named_buffers()}
    grads = to_official({**named, **buffers}, HEAD_DIMS)
    trained = {name for name in grads if 'running' not in name and 'tracked' not in name}
    assert set(expected['l2']) <= trained
    for name in trained:
        grad, norm, total = grads[name].double(), expected['l2'].get(name), expected['sum'].get(name)
        assert grad.norm().item() == pytest.approx(norm or 0.0, rel=1e-4, abs=1e-6), name
        assert grad.sum().item() == pytest.approx(total or 0.0, abs=1e-4), name


NORMS = read('vit_resnas', 'mln')


@pytest.mark.parametrize('case', NORMS['cases'], ids=lambda case: 'x'.join(map(str, case['shape'])))
def test_masked_layer_norm(case: dict[str, Any]) -> None:
    x, weight, bias = (torch.tensor(case[name], requires_grad=True) for name in ('x', 'weight', 'bias'))
    keep = torch.tensor(case['keep'])
    mask = torch.arange(x.shape[-1]) < keep[:, None]
    y = masked_layer_norm(x, mask, weight, bias, NORMS['eps'])
    y.backward(torch.tensor(case['upstream_grad']))
    torch.testing.assert_close(y, torch.tensor(case['y']), rtol=1e-5, atol=1e-5)
    kept = mask[:, None].expand_as(x)
    assert x.grad is not None and not x.grad[~kept].any()
    torch.testing.assert_close(x.grad[kept], torch.tensor(case['grad_x'])[kept], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(weight.grad, torch.tensor(case['grad_weight']), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(bias.grad, torch.tensor(case['grad_bias']), rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_sorting_of_heads_and_hidden_units() -> None:
    wanted = DATA['head_and_ffn_sorting']
    model, head = supernet(), weights()
    before = logits(model, images(), head)
    # Between two stages the published list has a reduction.
    stage, number = divmod(int(wanted['block'].removeprefix('blocks.')), 2 * DATA['space']['pairs_per_stage'] + 1)
    block, head_dim = model.stages[stage].blocks[number], HEAD_DIMS[stage]
    orders = {id(change.weight): change.order for change in importance_orders(model)}
    assert (orders[id(block.attn.proj.weight)][::head_dim] // head_dim).tolist() == wanted['head_order']
    assert orders[id(block.fc1.weight)].tolist() == wanted['ffn_order']
    for change in importance_orders(model):
        change.apply(change.weight)
    for old, new in zip(before, logits(model, images(), head)):
        torch.testing.assert_close(new, old, rtol=1e-4, atol=1e-5)


def test_warm_up() -> None:
    """How many options are open at an epoch, and when blocks may be left out."""
    for count, opened in SPACES['choices_open_at_epoch_0_to_32'].items():
        options = list(range(1, int(count) + 1))
        stage = dict(embed_dim=options, head_dim=[8], depth=2, optional=[1], block=dict(num_heads=[1], hidden_dim=[8]))
        space = SearchSpace.from_dict(dict(family='vit_res', stages=[stage]))
        for epoch, number in enumerate(opened):
            part = space.upper(min(1.0, epoch / 30))
            assert dict(part.stages[0].choices.options)['embed_dim'] == tuple(options[-number:])
            assert bool(part.stages[0].optional) == (epoch >= 20)


@torch.no_grad()
def test_another_image_size() -> None:
    """Positions that were resized when weights were loaded, and that are resized for the image."""
    wanted = DATA['resized']
    given = re.fullmatch(r'rule_input\(\((\d+),(\d+),(\d+),(\d+)\), seed=(\d+)\)', wanted['input'])
    assert given, wanted['input']
    *shape, seed = map(int, given.groups())
    inputs = np.random.RandomState(seed).standard_normal(shape).astype(np.float32)
    loaded = supernet(img_size=wanted['to_img'])
    tables = to_official({f'backbone.{k}': v for k, v in loaded.state_dict().items()}, HEAD_DIMS)
    for name, table in wanted['pos_embed'].items():
        values = tables[name].double().flatten()
        assert values.numel() == table['size'] and values.norm().item() == pytest.approx(table['l2'], rel=TOLERANCE)
        first, last = (torch.tensor(table[end]).double() for end in ('first', 'last'))
        torch.testing.assert_close(values[: len(first)], first, rtol=0, atol=1e-5)
        torch.testing.assert_close(values[-len(last) :], last, rtol=0, atol=1e-5)
    for model in (loaded, supernet()):
        model.set_arch(as_arch(CASES[wanted['arch']]['arch']))
        for found, kind in zip(logits(model, torch.from_numpy(inputs), weights()), ('class', 'token')):
            assert_close(found, f'resized.{kind}_logits')


@pytest.mark.parametrize('name', PUBLISHED)
def test_published_networks(name: str) -> None:
    known, wanted = entry(name.replace('_', '-')), PUBLISHED[name]
    classes = wanted['network_def'][-1][-1]
    assert known.arch == as_arch(wanted['arch']) == as_arch(as_settings(wanted['network_def']))
    assert known.params == wanted['params_without_token_head']
    head = classes * (wanted['arch']['embed'][-1] + 1)
    assert known.params + head == wanted['params']
    for side, macs in wanted['macs_with_stem_counted_at_true_resolution'].items():
        assert ViTRes.cost(known.arch, int(side), classes, img_size=int(side)).macs == macs
    with torch.device('meta'):
        assert count_params(ViTRes(arch=known.name)) + head == known.params


@pytest.mark.parametrize(('name', 'ours'), [('sr_tiny_mh', 'vit-resnas-tiny'), ('sr_small_mh', 'vit-resnas-small')])
def test_spaces(name: str, ours: str) -> None:
    space, wanted = load_space(ours), SPACES[name]
    classes = wanted['largest_network_def'][-1][-1]
    assert as_arch(as_settings(wanted['largest_network_def'])) == space.largest()
    cost = ViTRes.cost(space.largest(), 224, classes)
    assert cost.macs == wanted['largest_macs']
    width = space.largest().stages[-1].choices['embed_dim']
    assert wanted['largest_params'] in (cost.params, cost.params + classes * (width + 1))
    rows = [row for key in ('random', 'mutated_from_random0', 'crossed_from_random1_random2') for row in wanted[key]]
    assert rows
    for row in rows:
        arch = as_arch(as_settings(row['network_def']))
        space.validate(arch)
        assert ViTRes.cost(arch, 224, classes).macs == row['macs']
