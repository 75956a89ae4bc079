"""ViTAS's weights, the DeiT space's and Twins-SVT's: nothing is lost, and networks without a place are refused."""

from typing import Any

import pytest
import torch

from tests.families import FAMILIES
from vitnas_core.backbones import ViTASDeiT, ViTASTwins
from vitnas_core.backbones.foreign import digest
from vitnas_core.errors import CheckpointError
from vitnas_core.families.vitas.weights import (
    deit_to_official,
    deit_to_vitnas,
    twins_to_mmpretrain,
    twins_to_vitnas,
)
from vitnas_core.spaces import Arch

DEIT, TWINS = (FAMILIES[name].space for name in ('vitas_deit', 'vitas_twins'))
State = dict[str, torch.Tensor]


def random_state(backbone: torch.nn.Module, width: int) -> State:
    """An ImageClassifier's random weights."""
    state = {f'backbone.{name}': torch.randn_like(w) for name, w in backbone.state_dict().items()}
    return state | {'head.fc.weight': torch.randn(10, width), 'head.fc.bias': torch.randn(10)}


@pytest.mark.parametrize('head', [True, False])
@pytest.mark.parametrize('network', [dict(space=DEIT), dict(arch=DEIT.largest())], ids=['space', 'arch'])
def test_deit_round_trip_keeps_every_bit(network: dict[str, Any], head: bool) -> None:
    backbone = ViTASDeiT(**network, official=True)
    state = random_state(backbone, backbone.embed_dims)
    state = {name: tensor for name, tensor in state.items() if head or not name.startswith('head.')}
    official = deit_to_official(state, backbone)
    assert any('.attn.qkv.' in name for name in official) == ('arch' in network)
    assert digest(deit_to_vitnas(official, backbone)) == digest(state)


def test_queries_and_keys_come_before_values() -> None:
    """In the one tensor that a network that stands alone has for them."""
    backbone = ViTASDeiT(arch=DEIT.largest(), official=True)
    state = random_state(backbone, backbone.embed_dims)
    official = deit_to_official(state, backbone)
    joint = next(tensor for name, tensor in official.items() if name.endswith('Block_0.0.attn.qkv.weight'))
    path = 'backbone.blocks.0.attn'
    (qk,) = (name for name in state if name.startswith(f'{path}.qk.') and name.endswith('.weight'))
    assert torch.equal(joint, torch.cat([state[qk], state[f'{path}.v.weight']]))


def test_the_layout_of_the_release_is_for_official_networks() -> None:
    backbone = ViTASDeiT(arch=DEIT.largest())
    with pytest.raises(CheckpointError, match='the published layout of ViTAS is for networks with official=True'):
        deit_to_official(random_state(backbone, backbone.embed_dims), backbone)


def test_twins_round_trip_keeps_every_bit() -> None:
    backbone = ViTASTwins(arch=TWINS.largest())
    state = random_state(backbone, backbone.embed_dims[-1])
    theirs = twins_to_mmpretrain(state, backbone)
    assert digest(twins_to_vitnas(theirs, backbone)) == digest(state)
    damaged = {**theirs, 'head.fc.bias': torch.tensor(1.0)}
    with pytest.raises(CheckpointError, match=r'head\.fc\.weight is \(10, \d+\); in this network it is'):
        twins_to_vitnas(damaged, backbone)


def test_an_absent_block_has_no_place_in_mmpretrain() -> None:
    data = TWINS.largest().to_dict()
    stage = next(s for s, stage in enumerate(data['stages']) if len(stage['blocks']) > 1)
    data['stages'][stage]['blocks'][0] = None
    backbone = ViTASTwins(arch=Arch.from_dict(data))
    with pytest.raises(CheckpointError, match=rf'stages\[{stage}\].blocks\[0\] is absent, which mmpretrain has no'):
        twins_to_mmpretrain(random_state(backbone, backbone.embed_dims[-1]), backbone)
