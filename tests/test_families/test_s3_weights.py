"""S3's weights in the published layout and in timm's: nothing is lost but buffers, networks are recognised."""

from typing import Any

import pytest
import timm
import torch

from vitnas_core import zoo
from vitnas_core.backbones import S3
from vitnas_core.backbones.foreign import digest
from vitnas_core.errors import CheckpointError
from vitnas_core.families.s3.weights import find_backbone, is_timm, timm_name, to_official, to_timm, to_vitnas
from vitnas_core.spaces import Arch

State = dict[str, torch.Tensor]


def small(windows: tuple[int, ...] = (4, 7, 3), ratio: float = 2.0, **change: Any) -> Arch:
    """An architecture of three stages, the second of two blocks, that is not in the zoo."""
    stages = []
    for width, heads, window, depth in zip((32, 96, 64), (1, 3, 2), windows, (1, 2, 1)):
        block = {**dict(num_heads=heads, mlp_ratio=ratio, window_size=window), **change}
        stages.append(dict(embed_dim=width, blocks=[block] * depth))
    return Arch.from_dict(dict(family='s3', stages=stages))


def network(arch: Arch | str, classes: int = 5, **settings: Any) -> State:
    """An ImageClassifier's random weights."""
    backbone = S3(arch=arch, **settings)
    state = {f'backbone.{name}': torch.randn(tensor.shape) for name, tensor in backbone.state_dict().items()}
    if classes:
        width = backbone.embed_dims[-1]
        state |= {'head.fc.weight': torch.randn(classes, width), 'head.fc.bias': torch.randn(classes)}
    return state


@pytest.fixture
def ours() -> State:
    return network(small())


@pytest.fixture
def official(ours: State) -> State:
    return to_official(ours)


def with_buffers(official: State) -> State:
    """As the published files are: with what follows from the image size."""
    buffers = {}
    for name, tensor in official.items():
        if name.endswith('relative_position_bias_table'):
            tokens = ((int(len(tensor) ** 0.5) + 1) // 2) ** 2
            block = name.removesuffix('attn.relative_position_bias_table')
            buffers[f'{block}attn.relative_position_index'] = torch.zeros(tokens, tokens, dtype=torch.long)
            if '.blocks.1.' in name:
                buffers[f'{block}attn_mask'] = torch.zeros(4, tokens, tokens)
    assert buffers
    return {**official, **buffers}


def test_official_names_and_shapes() -> None:
    """FACTS, section 5: 13 tensors per block, 3 per merging."""
    official = to_official(network('s3-t', 1000))
    assert len(official) == 12 * 13 + 3 * 3 + 8
    assert official['patch_embed.proj.weight'].shape == (96, 3, 4, 4)
    assert official['layers.2.blocks.5.attn.relative_position_bias_table'].shape == (729, 12)
    assert official['layers.3.blocks.1.attn.relative_position_bias_table'].shape == (169, 24)
    assert official['layers.1.blocks.0.attn.qkv.weight'].shape == (576, 192)
    assert official['layers.1.blocks.0.mlp.fc2.weight'].shape == (192, 768)
    assert official['layers.2.downsample.reduction.weight'].shape == (768, 1536)
    assert official['norm.weight'].shape == (768,) and official['head.weight'].shape == (1000, 768)
    assert sum(tensor.numel() for tensor in official.values()) == 28_328_674
    theirs = timm.create_model('swin_s3_tiny_224', pretrained=False).state_dict()
    shapes = {timm_name(name): tensor.shape for name, tensor in official.items()}
    assert shapes == {name: tensor.shape for name, tensor in theirs.items()}


@pytest.mark.parametrize('classes', [5, 0])
@pytest.mark.parametrize(('back', 'timm_layout'), [(to_official, False), (to_timm, True)])
def test_round_trip_keeps_every_bit(back, timm_layout: bool, classes: int) -> None:
    ours = network(small(), classes)
    theirs = back(ours)
    assert is_timm(theirs) == timm_layout
    assert digest(to_vitnas(theirs)) == digest(ours)
    assert digest(to_vitnas(with_buffers(theirs))) == digest(ours)
    assert digest(back(to_vitnas(theirs))) == digest(theirs)
    assert all(tensor.is_contiguous() for tensor in (theirs | ours).values())


def test_types_are_kept(ours: State) -> None:
    ours = {name: tensor.bfloat16() for name, tensor in ours.items()}
    assert digest(to_vitnas(to_timm(ours))) == digest(ours)


def test_rows_of_qkv(ours: State, official: State) -> None:
    """Official rows go [3][heads][32], ours [heads][3][32]; the bias likewise."""
    for name in ('weight', 'bias'):
        theirs = official[f'layers.1.blocks.1.attn.qkv.{name}']
        mine = ours[f'backbone.stages.1.blocks.1.attn.qkv.{name}']
        for part in range(3):
            for head in range(3):
                for row in (0, 1, 31):
                    assert torch.equal(theirs[part * 96 + head * 32 + row], mine[head * 96 + part * 32 + row])


def test_inputs_of_a_merging(ours: State, official: State) -> None:
    """Official: groups of channels for (0, 0), (1, 0), (0, 1), (1, 1). Ours: four values per channel, row by row."""
    for name in ('norm.weight', 'norm.bias', 'reduction.weight'):
        theirs, mine = official[f'layers.1.downsample.{name}'], ours[f'backbone.stages.2.merging.{name}']
        for group, (row, column) in enumerate([(0, 0), (1, 0), (0, 1), (1, 1)]):
            for channel in (0, 1, 95):
                assert torch.equal(theirs[..., 96 * group + channel], mine[..., 4 * channel + 2 * row + column])


def test_entries_of_a_table(ours: State, official: State) -> None:
    """Official: row by row over the offsets from −6 to 6. Ours: offsets 0, −1, 1, −2, 2, …"""
    theirs = official['layers.1.blocks.0.attn.relative_position_bias_table']
    mine = ours['backbone.stages.1.blocks.0.attn.bias.tables.shared']
    order = [0, -1, 1, -2, 2, -3, 3, -4, 4, -5, 5, -6, 6]
    for y in range(-6, 7):
        for x in range(-6, 7):
            assert torch.equal(theirs[(y + 6) * 13 + x + 6], mine[:, order.index(y), order.index(x)])


def test_a_fixed_network_with_tables_by_window(ours: State) -> None:
    named = {}
    for name, tensor in ours.items():
        named[name.replace('tables.shared', f'tables.{(tensor.shape[-1] + 1) // 2}')] = tensor
    S3(arch=small(), bias='per-window').load_state_dict(
        {k[9:]: v for k, v in named.items() if k.startswith('backbone.')}
    )
    assert digest(to_official(named)) == digest(to_official(ours))


def test_every_entry_of_the_zoo_is_recognised() -> None:
    """With the image size that its tables are stored for; nothing but the shapes is looked at."""
    names = [name for name in zoo.arch_names() if zoo.entry(name).arch.family == 's3']
    for name in names:
        size = zoo.entry(name).input_size[0]
        with torch.device('meta'):
            state = to_vitnas(to_official(network(name, img_size=size)))
            settings = find_backbone(state)
            assert settings == dict(arch=name) | (dict(img_size=size) if size != 224 else {})
            backbone = S3(**settings)
        shapes = {f'backbone.{key}': tensor.shape for key, tensor in backbone.state_dict().items()}
        assert shapes.items() <= {key: tensor.shape for key, tensor in state.items()}.items()
    assert len(names) >= 3


def test_a_missing_tensor_is_named_as_ours_is(ours: State) -> None:
    short = {name: tensor for name, tensor in ours.items() if name != 'backbone.norm2.bias'}
    with pytest.raises(CheckpointError, match=r'backbone\.norm2\.bias is missing; in an S3 of its other tensors'):
        to_official(short)
