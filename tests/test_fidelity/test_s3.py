"""S3 against the published code: outputs, features, windows, gradients and costs of every reference case."""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

from tests.reference import ROOT, read
from vitnas_core.backbones import S3
from vitnas_core.elastic import Windows, WindowTables
from vitnas_core.families.s3.weights import to_official, to_vitnas
from vitnas_core.spaces import Arch, SearchSpace
from vitnas_core.utils.counting import count_params
from vitnas_core.zoo import arch_names, entry, load_arch

FOLDER = ROOT / 's3'
CASES = {case['name']: case for case in read('s3', 'cases')['cases']}
ROWS, PUBLISHED, GRADS = read('s3', 'counts')['rows'], read('s3', 'archs')['published'], read('s3', 'grads')
TOLERANCE = 1e-5


def as_dict(settings: dict[str, Any]) -> dict[str, Any]:
    stages = []
    for s, (width, depth) in enumerate(zip(settings['embed_dim'], settings['depth'], strict=True)):
        lists = (settings[name][s][:depth] for name in ('heads', 'mlp_ratio', 'window'))
        blocks = [dict(num_heads=h, mlp_ratio=r, window_size=w) for h, r, w in zip(*lists, strict=True)]
        assert len(blocks) == depth
        stages.append(dict(embed_dim=width, blocks=blocks))
    return dict(family='s3', stages=stages)


def as_arch(settings: dict[str, Any]) -> Arch:
    return Arch.from_dict(as_dict(settings))


def sizes(settings: dict[str, Any]) -> dict[str, Any]:
    return dict(img_size=settings['image_size'], patch_size=settings['patch_size'])


def weights(case: dict[str, Any]) -> dict[str, torch.Tensor]:
    """The case's parameters in our layout."""
    return to_vitnas(load_file(FOLDER / case['weights']))


def build(case: dict[str, Any]) -> S3:
    """The case's network with its weights."""
    settings = case['settings']
    if not (settings['qkv_bias'] and settings['norm_after_patch_embedding'] and settings['in_channels'] == 3):
        pytest.skip('qkv without bias, patches without norm and other than three input channels are flags that none '
                    'of the published configurations uses; vitnas does not offer them')  # fmt: skip
    assert settings['head_dim'] == 32
    model = S3(arch=as_arch(settings), **sizes(settings))
    model.load_state_dict(
        {k.removeprefix('backbone.'): v for k, v in weights(case).items() if k.startswith('backbone.')}
    )
    return model


def images(case: dict[str, Any]) -> torch.Tensor:
    return torch.from_numpy(np.load(FOLDER / case['input']))


def classify(case: dict[str, Any], features: torch.Tensor) -> torch.Tensor:
    """Logits of a feature map, whose channels may be fewer than it has."""
    head = weights(case)
    width = head['head.fc.weight'].shape[1]
    return F.linear(features.mean((2, 3))[:, :width], head['head.fc.weight'], head['head.fc.bias'])


def assert_close(ours: torch.Tensor, theirs: np.ndarray, what: str) -> None:
    expected = torch.from_numpy(theirs)
    assert ours.shape == expected.shape, what
    assert ((ours - expected).abs().max() / expected.abs().max()).item() < TOLERANCE, what


@pytest.mark.parametrize('name', CASES)
@torch.no_grad()
def test_outputs_and_features(name: str) -> None:
    case = CASES[name]
    model = build(case).eval()
    found: dict[str, torch.Tensor] = {}

    def keep(module: torch.nn.Module, key: str) -> None:
        """Keep the tokens of the first image, row by row."""
        module.register_forward_hook(lambda _, __, out: found.__setitem__(key, out[:1].flatten(1, 2)))

    keep(model.patch_embed, 'patch_embedding')
    for s, stage in enumerate(model.stages):
        keep(stage.blocks[-1], f'stage{s}_before_merging')
        if s:
            keep(stage.merging, f'stage{s - 1}_after_merging')
    (features,) = model(images(case))
    found['final_tokens'] = features[:1].flatten(2).mT
    found['pooled'], found['logits'] = features.mean((2, 3)), classify(case, features)
    expected = np.load(FOLDER / 'outputs.npz')
    assert case['outputs']
    for output in case['outputs']:
        assert_close(found[output], expected[f'{name}/{output}'], output)


@pytest.mark.parametrize('name', CASES)
@torch.no_grad()
def test_windows_in_effect(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES[name]
    model, used = build(case).eval(), []
    enter = Windows.enter
    monkeypatch.setattr(Windows, 'enter', lambda self, x: used.append(self) or enter(self, x))
    model(images(case))
    blocks = [block for stage in model.stages for block in stage.blocks]
    expected = [block for stage in case['in_effect'] for block in stage]
    for block, windows, wanted in zip(blocks, used, expected, strict=True):
        mask = WindowTables(torch.device('cpu')).mask(windows, torch.float32)
        heads, side, _ = block.attn.bias.tables['shared'].shape
        assert dict(
            window=windows.size,
            shift=windows.shift,
            resolution=[windows.height, windows.width],
            bias_table=[side * side, heads],
            mask=None if mask is None else list(mask.squeeze(1).shape),
        ) == {key: wanted[key] for key in ('window', 'shift', 'resolution', 'bias_table', 'mask')}


@pytest.mark.parametrize('name', CASES)
def test_parameters(name: str) -> None:
    case = CASES[name]
    model, settings = build(case), case['settings']
    classes = settings['num_classes']
    assert count_params(model) + classes * (settings['embed_dim'][-1] + 1) == case['params']
    size = settings['image_size']
    assert model.price(model.arch, size, classes).params == case['params']


@pytest.mark.parametrize('name', CASES)
@torch.no_grad()
def test_supernet_gives_the_same(name: str) -> None:
    """The case's weights as a part of larger ones; everything else is noise."""
    case = CASES[name]
    fixed, data = build(case), as_dict(case['settings'])
    for stage in data['stages']:
        for block in stage['blocks']:
            block.update({key: [value, value + 1] for key, value in block.items()})
        stage['blocks'] += stage['blocks'][:1]
        stage.update(embed_dim=[stage['embed_dim'], stage['embed_dim'] + 24])
        stage.update(depth=[len(stage['blocks']) - 1, len(stage['blocks'])])
    supernet = S3(space=SearchSpace.from_dict(data), **sizes(case['settings'])).eval()
    state = {key: torch.randn_like(value) for key, value in supernet.state_dict().items()}
    for key, value in fixed.state_dict().items():
        assert any(more > less for more, less in zip(state[key].shape, value.shape)) or 'tables' in key
        state[key][tuple(slice(0, size) for size in value.shape)] = value
    supernet.load_state_dict(state)
    supernet.set_arch(fixed.arch)
    x, expected = images(case), np.load(FOLDER / 'outputs.npz')
    assert_close(classify(case, supernet(x)[0]), expected[f'{name}/logits'], 'supernet')
    assert_close(classify(case, supernet.extract()(x)[0]), expected[f'{name}/logits'], 'extracted')


def test_gradients() -> None:
    case = CASES[GRADS['case']]
    model, state = build(case).train(), weights(case)
    head = {name: torch.nn.Parameter(state[name]) for name in ('head.fc.weight', 'head.fc.bias')}
    logits = F.linear(model(images(case))[-1].mean((2, 3)), *head.values())
    loss = F.cross_entropy(logits, torch.tensor(GRADS['labels']))
    loss.backward()
    assert loss.item() == pytest.approx(GRADS['loss'], rel=TOLERANCE)
    named = {f'backbone.{name}': parameter for name, parameter in model.named_parameters()} | head
    grads = to_official({name: parameter.grad for name, parameter in named.items()})
    assert grads.keys() == GRADS['grads'].keys()
    for name, expected in GRADS['grads'].items():
        grad = grads[name].double()
        assert list(grad.shape) == expected['shape']
        assert grad.norm().item() == pytest.approx(expected['l2'], rel=TOLERANCE), name
        assert grad.sum().item() == pytest.approx(expected['sum'], abs=1e-4), name
        if expected['nonzero'] is not None:
            assert grad.count_nonzero().item() == expected['nonzero'], name


@pytest.mark.parametrize('row', ROWS, ids=[row['name'] for row in ROWS])
def test_costs(row: dict[str, Any]) -> None:
    settings = row['arch']
    cost = S3.cost(as_arch(settings), settings['image_size'], settings['num_classes'], **sizes(settings))
    assert cost.params == row['params']
    assert cost.macs == row['macs']['convolution_and_linear'] + row['macs']['attention_matmuls']
    with torch.device('meta'):
        model = S3(arch=as_arch(settings), **sizes(settings))
    tables = [parameter for key, parameter in model.named_parameters() if '.bias.tables.' in key]
    assert sum(table.numel() for table in tables) == row['params_relative_bias_tables']


@pytest.mark.parametrize('title', PUBLISHED)
def test_published_architectures(title: str) -> None:
    (known,) = (entry(name) for name in arch_names() if entry(name).title == title)
    assert load_arch(known.name) == as_arch(PUBLISHED[title])
    assert known.input_size == (PUBLISHED[title]['image_size'],) * 2
    assert known.num_classes == PUBLISHED[title]['num_classes']
    assert S3.cost(known.name, known.input_size, known.num_classes).params == known.params
    assert S3.cost(known.name, known.input_size, known.num_classes).macs == known.macs
