"""AutoFormer's weights in the published layout: nothing is lost, and other weights are refused."""

import pytest
import torch

from vitnas_core.backbones import AutoFormer
from vitnas_core.backbones.foreign import digest
from vitnas_core.errors import CheckpointError
from vitnas_core.families.autoformer.weights import find_settings, find_space, to_official, to_vitnas

State = dict[str, torch.Tensor]


def published() -> State:
    """A file as published: supernet T, 256 wide, with a head."""
    backbone = AutoFormer(space='autoformer-tiny', embed_dims=256, official=True)
    generator = torch.Generator().manual_seed(0)
    state = {f'backbone.{k}': torch.randn(v.shape, generator=generator) for k, v in backbone.state_dict().items()}
    state['head.fc.weight'], state['head.fc.bias'] = torch.randn(1000, 256), torch.randn(1000)
    return to_official(state)


@pytest.fixture(scope='module')
def official() -> State:
    return published()


def test_official_names_and_shapes(official: State) -> None:
    """FACTS, section 10: 16 tensors per block, no buffers."""
    assert len(official) == 16 * 14 + 8
    assert official['patch_embed_super.proj.weight'].shape == (256, 3, 16, 16)
    assert official['blocks.13.attn.rel_pos_embed_v.embeddings_table_h'].shape == (30, 64)
    assert official['blocks.0.attn.qkv.weight'].shape == (768, 256)
    assert official['blocks.0.fc1.weight'].shape == (1024, 256)
    assert sum(t.numel() for t in official.values()) == 11_669_224


def test_round_trip_keeps_every_bit(official: State) -> None:
    ours = to_vitnas(official)
    assert digest(to_official(ours)) == digest(official)
    assert digest(ours) != digest(official)
    changed = {**official, 'norm.bias': official['norm.bias'].clone()}
    changed['norm.bias'][0] += 1e-6
    assert digest(changed) != digest(official)


def test_rows_of_qkv(official: State) -> None:
    """Official query row j is full row 3j; ours is row j % 64 of head j // 64."""
    theirs = official['blocks.3.attn.qkv.weight']
    ours = to_vitnas(official)['backbone.blocks.3.attn.qkv.weight']
    for j in (0, 1, 63, 64, 200, 255):
        head, row = divmod(j, 64)
        for part in range(3):
            assert torch.equal(ours[192 * head + 64 * part + row], theirs[3 * j + part])


def test_settings_of_another_image_patch_and_reach() -> None:
    backbone = AutoFormer(space='autoformer-tiny', img_size=64, patch_size=8, reach=7)
    state = {f'backbone.{k}': v for k, v in backbone.state_dict().items()}
    space = find_space(state)
    assert space.name == 'autoformer-tiny'
    assert find_settings(state, space) == dict(embed_dims=240, official=True, patch_size=8, img_size=64, reach=7)


@pytest.mark.parametrize(
    ('name', 'shape', 'message'),
    [
        ('head.fc.bias', (), 'head.weight is (1000, 256); in a supernet of autoformer-tiny it is (256,)'),
        ('head.fc.bias', None, 'head.bias is missing; in a supernet of autoformer-tiny it is (1000,)'),
        (
            'head.fc.weight',
            (1000, 192),
            'head.weight is (1000, 192); in a supernet of autoformer-tiny it is',
        ),
        ('backbone.pos_embed', (), 'pos_embed is ()'),
    ],
)
def test_settings_need_every_tensor(official: State, name: str, shape: tuple[int, ...] | None, message: str) -> None:
    """Also those of the head, half of which would be lost without a word."""
    state = to_vitnas(official)
    if shape is None:
        del state[name]
    else:
        state[name] = torch.zeros(shape)
    with pytest.raises(CheckpointError) as err:
        find_settings(state, find_space(state))
    assert message in str(err.value)


@pytest.mark.parametrize('name', ['backbone.cls_token', 'backbone.norm.weight'])
def test_what_shows_the_size_is_needed_both_ways(official: State, name: str) -> None:
    state = to_vitnas(official) | {name: torch.tensor(1.0)}
    with pytest.raises(CheckpointError, match=f'^not a vitnas AutoFormer checkpoint: it lacks {name}$'):
        to_official(state)
    theirs = name.removeprefix('backbone.')
    with pytest.raises(CheckpointError, match=f'^not an official AutoFormer checkpoint: it lacks {theirs}$'):
        to_vitnas({**official, theirs: torch.tensor(1.0)})
