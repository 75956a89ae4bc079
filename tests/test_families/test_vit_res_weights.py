"""ViT-ResNAS's weights in the published layout: nothing is lost, networks are recognised, others refused."""

from typing import Any

import pytest
import torch

from vitnas_core.backbones import ViTRes
from vitnas_core.backbones.foreign import digest
from vitnas_core.errors import CheckpointError
from vitnas_core.families.vit_res import weights
from vitnas_core.families.vit_res.weights import find_arch, find_backbone, find_settings, to_official, to_vitnas
from vitnas_core.spaces import Arch

HEAD_DIMS = (8, 12, 8)
State = dict[str, torch.Tensor]


def small(absent: bool = False) -> Arch:
    """An architecture of three stages that is not in the zoo."""
    stages: list[dict[str, Any]] = []
    for width, head_dim, depth in zip((16, 32, 40), HEAD_DIMS, (2, 3, 1)):
        blocks: list[dict[str, int] | None] = [dict(num_heads=2, hidden_dim=24), dict(num_heads=1, hidden_dim=16)] * 2
        stages.append(dict(embed_dim=width, head_dim=head_dim, blocks=blocks[:depth]))
    if absent:
        stages[1]['blocks'][1] = None
    return Arch.from_dict(dict(family='vit_res', stages=stages))


def network(arch: Arch | str, classes: int = 5, **settings: Any) -> State:
    """An ImageClassifier's random weights."""
    backbone = ViTRes(arch=arch, **settings)
    state = {
        f'backbone.{name}': torch.randn(tensor.shape) if tensor.is_floating_point() else torch.full_like(tensor, 7)
        for name, tensor in backbone.state_dict().items()
    }
    for head in ('head.fc', 'head.token_fc') if classes else ():
        width = backbone.embed_dims[-1]
        state |= {f'{head}.weight': torch.randn(classes, width), f'{head}.bias': torch.randn(classes)}
    return state


@pytest.mark.parametrize('classes', [5, 0])
@pytest.mark.parametrize('settings', [{}, dict(img_size=112)])
@pytest.mark.parametrize('absent', [False, True])
def test_round_trip_keeps_every_bit(settings: dict[str, Any], classes: int, absent: bool) -> None:
    ours = network(small(absent), classes, **settings)
    official = to_official(ours, HEAD_DIMS)
    again = to_vitnas(official, HEAD_DIMS)
    assert again.keys() == ours.keys() and all(torch.equal(again[name], ours[name]) for name in ours)
    assert find_arch(again, HEAD_DIMS) == small(absent)
    assert find_settings(again) == settings
    assert digest(to_official(again, HEAD_DIMS)) == digest(official)


def test_official_names() -> None:
    official = to_official(network(small(), 5), HEAD_DIMS)
    blocks = sorted({int(name.split('.')[1]) for name in official if name.startswith('blocks.')})
    assert blocks == list(range(8))  # 2 blocks, a reduction, 3 blocks, a reduction, 1 block
    assert official['blocks.2.patch_reduce.weight'].shape == (32, 16, 3, 3)
    assert official['blocks.6.token_transform.weight'].shape == (40, 32)
    assert official['blocks.7.attn.qkv.weight'].shape == (48, 40)
    assert official['tokens'].shape == (1, 1, 16) and official['patch_head.weight'].shape == (5, 40)


def test_rows_of_qkv_change_places() -> None:
    ours = network(small(), 0)
    official = to_official(ours, HEAD_DIMS)
    mine, theirs = ours['backbone.stages.0.blocks.0.attn.qkv.weight'], official['blocks.0.attn.qkv.weight']
    for part in range(3):  # q, k and v of two heads
        for head in range(2):
            rows = slice(8 * (3 * head + part), 8 * (3 * head + part) + 8)
            assert torch.equal(mine[rows], theirs[8 * (2 * part + head) :][:8])


def test_other_files_are_refused() -> None:
    official = to_official(network(small()), HEAD_DIMS)

    def without(name: str) -> State:
        return {key: tensor for key, tensor in official.items() if key != name}

    for state, words in (
        ({**official, 'blocks.0.attn.gate': torch.zeros(1)}, 'blocks.0.attn.gate is not one of its tensors'),
        (without('blocks.3.mlp.fc1.weight'), 'it lacks blocks.3.mlp.fc1.weight'),
        (without('pos_embed'), '^not a ViT-ResNAS checkpoint: it lacks pos_embed$'),
        (without('norm.bias'), r'norm.bias is missing; in a ViT-ResNAS of its other tensors it is \(40,\)'),
        ({**official, 'blocks.2.pos_embed': torch.zeros(1, 9, 32)}, r'blocks.2.pos_embed is \(1, 9, 32\); in a'),
        ({'fc.weight': torch.zeros(2, 2)}, 'fc.weight is not one of its tensors'),
    ):
        with pytest.raises(CheckpointError, match=words):
            to_vitnas(state, HEAD_DIMS)
    with pytest.raises(CheckpointError, match='it has 3 stages, but 2 sizes of heads are given'):
        to_official(network(small()), (8, 12))
    with pytest.raises(CheckpointError, match='backbone.norm0.weight has no place in the published layout'):
        to_official(network(small(), out_indices=(0, 2)), HEAD_DIMS)
    for wrong in (0, 7):
        with pytest.raises(CheckpointError, match=f'which is no multiple of the head size {wrong}'):
            find_arch(network(small()), (8, 12, wrong))


def test_arguments_of_the_backbone() -> None:
    """Its name in the zoo, else its architecture, and the image size."""
    assert find_backbone(network('vit-resnas-tiny'), weights.HEAD_DIMS) == dict(arch='vit-resnas-tiny')
    assert find_backbone(network(small(), img_size=112), HEAD_DIMS) == dict(arch=small(), img_size=112)
