"""NASViT's supernets in the published layout: all weights that networks read are kept to the bit, others refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.families import FAMILIES
from vitnas_core.backbones import NASViT
from vitnas_core.errors import CheckpointError
from vitnas_core.families.nasvit.weights import to_official, to_vitnas
from vitnas_core.spaces import SearchSpace

State = dict[str, Tensor]


def space() -> SearchSpace:
    """The one of the generic tests with MLPs as published, whose ratio is not searched."""
    data = json.loads(FAMILIES['nasvit'].space.to_json())
    for stage in data['stages'][2:-1]:
        stage.update(mlp_ratio=[1], num_windows=[1])
    return SearchSpace.from_dict(data)


def network(classes: int = 5) -> State:
    """An ImageClassifier's random weights."""
    backbone = NASViT(space=space(), official=True)
    state = {
        f'backbone.{name}': torch.randn(tensor.shape) if tensor.is_floating_point() else torch.zeros_like(tensor)
        for name, tensor in backbone.state_dict().items()
    }
    width = backbone.out_channels()[0]
    return state | {'head.fc.weight': torch.randn(classes, width), 'head.fc.bias': torch.randn(classes)}


def test_round_trip_keeps_every_bit() -> None:
    ours = network()
    official = to_official(ours, space())
    again = to_vitnas(official, space())
    assert again.keys() == ours.keys() and all(torch.equal(again[name], ours[name]) for name in ours)
    wrapped = {f'module.{name}': tensor for name, tensor in official.items()}
    assert to_vitnas(wrapped, space()).keys() == ours.keys()


def test_what_is_not_read_may_be_missing() -> None:
    """Copies of statistics, counters, indices; the fixtures' files have none."""
    official = to_official(network(), space())
    unread = ('relative_position_index', 'num_batches_tracked', 'rescale')
    few = {n: t for n, t in official.items() if not n.endswith(unread) and '.bn_tracking.' not in n}
    assert len(few) < len(official)
    assert to_vitnas(few, space()).keys() == network().keys()


@pytest.mark.parametrize(
    ('change', 'words'),
    [
        (lambda s: s.pop('blocks.0.mobile_inverted_conv.depth_conv.conv.conv.weight'), 'it lacks blocks.0.mobile'),
        (lambda s: s.update({'blocks.99.norm1.weight': torch.ones(3)}), 'blocks.99.norm1.weight is no tensor'),
        (lambda s: s.update({'first_conv.conv.conv.weight': torch.ones(3, 3, 3, 3)}), 'backbone.stem.weight is'),
        (lambda s: s.update({'blocks.3.attn.q.linear.weight': torch.ones(3, 3)}), 'queries, keys and values have'),
        (lambda s: s.update({'blocks.3.attn.q.linear.weight': torch.ones(())}), 'queries, keys and values have'),
        (lambda s: s.update({'blocks.3.rescale_mlp': torch.ones(5, 3)}), 'blocks.3.rescale_mlp has shape (5, 3); a'),
        (
            lambda s: s.update({'blocks.3.attn.relative_position_bias_table': torch.ones(9, 3)}),
            'a published one has 1225',
        ),
    ],
)
def test_other_files_are_refused(change: Any, words: str) -> None:
    official = to_official(network(), space())
    change(official)
    with pytest.raises(CheckpointError) as err:
        to_vitnas(official, space())
    assert words in str(err.value)


def test_weights_with_the_paper_s_scaling_have_no_place() -> None:
    paper = {f'backbone.{name}': tensor for name, tensor in NASViT(space=space()).state_dict().items()}
    with pytest.raises(CheckpointError, match='scale_attn.*in a supernet of .* with official=True'):
        to_official(paper, space())


@pytest.mark.parametrize('shape', [None, ()])
def test_a_head_that_is_not_whole_is_refused(shape: tuple[int, ...] | None) -> None:
    ours = network()
    del ours['head.fc.bias']
    if shape is not None:
        ours['head.fc.bias'] = torch.zeros(shape)
    with pytest.raises(CheckpointError, match=r'head\.fc\.\w+ is .*; in a supernet of .* with official=True'):
        to_official(ours, space())
