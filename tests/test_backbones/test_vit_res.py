"""ViT-Res beyond the generic contracts: reductions, odd sides, absent blocks, outputs, errors."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.families import FAMILIES
from vitnas_core.backbones import ViTRes
from vitnas_core.backbones.pretrained import channel_axes
from vitnas_core.errors import ArchError, SpaceError, VitnasError
from vitnas_core.spaces import Arch
from vitnas_core.utils.counting import count_macs

FAMILY = FAMILIES['vit_res']


def randomised(**settings: Any) -> ViTRes:
    model = ViTRes(space=FAMILY.space, **{**FAMILY.settings, **settings})
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model.eval()


def pooled(maps: Tensor) -> Tensor:
    """2 × 2 averages by hand; at an odd side of what there is."""
    cells = [
        [maps[..., 2 * i : 2 * i + 2, 2 * j : 2 * j + 2].mean((-2, -1)) for j in range(-(-maps.shape[-1] // 2))]
        for i in range(-(-maps.shape[-2] // 2))
    ]
    return torch.stack([torch.stack(row, -1) for row in cells], -2)


@pytest.mark.parametrize('size', [(4, 4), (3, 4), (5, 3), (1, 1)])
@torch.no_grad()
def test_a_reduction_by_hand(size: tuple[int, int]) -> None:
    model = randomised().double()
    reduction = model.stages[1].reduction
    x = torch.randn(2, 1 + size[0] * size[1], 24, dtype=torch.float64)
    normed = F.layer_norm(x, (24,), reduction.norm.weight, reduction.norm.bias, 1e-6)
    maps = normed[:, 1:].mT.unflatten(2, size)
    fine = F.conv2d(maps, reduction.conv.weight, reduction.conv.bias, stride=2, padding=1)
    half = (-(-size[0] // 2), -(-size[1] // 2))
    table = F.interpolate(reduction.pos_embed.mT.unflatten(2, (2, 2)), half, mode='bicubic')
    table = reduction.pos_embed.mT.unflatten(2, (2, 2)) if half == (2, 2) else table
    coarse = F.pad(pooled(x[:, 1:].mT.unflatten(2, size)), (0, 0, 0, 0, 0, 40 - 24))
    token = reduction.token(normed[:, :1]) + F.pad(x[:, :1], (0, 16))
    out, found = reduction(x, size)
    assert found == half
    torch.testing.assert_close(out, torch.cat([token, (fine + table + coarse).flatten(2).mT], 1))


@torch.no_grad()
def test_without_the_main_branch_only_the_residual_one_is_left() -> None:
    model, plain = randomised(), randomised(shortcut=False)
    plain.load_state_dict(dict(model.state_dict()))  # without its note: the other setting is meant
    x = torch.randn(1, 17, 24)
    whole, branch = (one.stages[1].reduction(x, (4, 4))[0] for one in (model, plain))
    rest = whole - branch
    torch.testing.assert_close(rest[..., 24:], torch.zeros_like(rest[..., 24:]))
    torch.testing.assert_close(rest[:, 0, :24], x[:, 0], rtol=0, atol=1e-5)


@torch.no_grad()
def test_the_stem_adds_the_first_convolution_to_the_third() -> None:
    model = randomised()
    stem, x = model.patch_embed, torch.randn(2, 3, 28, 42)
    first = stem.conv1(x)
    assert first.shape == (2, 24, 14, 21) and first.min() == 0
    expected = F.conv2d(first + stem.conv3(stem.conv2(first)), stem.proj.weight, stem.proj.bias, stride=7)
    torch.testing.assert_close(stem.proj(stem(x)), expected)
    assert torch.equal(
        stem(x[..., :27, :30]), stem(F.pad(x[..., :27, :30], (0, 12, 0, 1)))
    )  # zeros up to whole patches


@torch.no_grad()
def test_an_absent_block_is_skipped_and_an_extracted_network_lacks_it() -> None:
    model, x = randomised(), torch.randn(1, 3, 56, 56)
    arch = model.space.largest().to_dict()
    arch['stages'][0]['blocks'][1] = None
    ran: list[int] = []
    for b, block in enumerate(model.stages[0].blocks):
        block.register_forward_hook(lambda *_, b=b: ran.append(b))
    model.set_arch(arch)
    out = model(x)[0]
    assert ran == [0, 2]
    fixed = model.extract()
    assert torch.equal(fixed(x)[0], out)
    assert not [name for name in fixed.state_dict() if name.startswith('stages.0.blocks.1.')]
    with pytest.raises(ArchError, match=r'stages\[0\].blocks\[1\] is present; the weights have no such block'):
        fixed.set_arch(model.space.largest())
    cost = fixed.price(fixed.arch, 56)
    assert cost.macs == count_macs(fixed, x)


@torch.no_grad()
def test_what_is_returned() -> None:
    model, x = randomised(out_indices=(0, -1)), torch.randn(2, 3, 60, 80)
    first, last = model(x)
    assert first.shape == (2, 24, 5, 6) and last.shape == (2, 40, 3, 3)
    tokens = randomised(out_type='raw')
    tokens.load_state_dict({k: v for k, v in model.state_dict().items() if not k.startswith('norm0')})
    (raw,) = tokens(x)
    torch.testing.assert_close(raw[:, 1:].mT.unflatten(2, (3, 3)), last)
    for out_type, expected in (('cls_token', raw[:, 0]), ('avg_featmap', raw[:, 1:].mean(1))):
        tokens.out_type = out_type
        torch.testing.assert_close(tokens(x)[0], expected)


def test_refusals() -> None:
    data = FAMILY.space.largest().to_dict()
    narrow = {**data, 'stages': [data['stages'][0], {**data['stages'][1], 'embed_dim': 16}]}
    with pytest.raises(ArchError, match=r'stages\[1\].embed_dim is 16, less than the 24 before it'):
        ViTRes.cost(Arch.from_dict(narrow), 56)
    empty = {**data, 'stages': [data['stages'][0], {**data['stages'][1], 'blocks': []}]}
    with pytest.raises(ArchError, match=r'stages\[1\].blocks is empty'):
        ViTRes.cost(Arch.from_dict(empty), 56)
    with pytest.raises(ArchError, match=r'stages\[0\].head_dim is missing'):
        ViTRes.cost(Arch.from_dict(dict(family='vit_res', stages=[dict(embed_dim=8, blocks=[{}])])), 56)

    def space(**changes: Any) -> dict[str, Any]:
        changed = FAMILY.space.to_dict()
        changed['stages'][1] = {**changed['stages'][1], **changes}
        return changed

    for changes, words in (
        (dict(embed_dim=[20, 40]), r'stages\[1\].embed_dim of the ViTRes space should be at least 24'),
        (dict(head_dim=[8, 12]), 'head_dim of the ViTRes space should have one option'),
        (dict(embed_dim=[32.5, 40]), r'stages\[1\].embed_dim should be a whole number above 0, but got 32.5'),
    ):
        with pytest.raises(SpaceError, match=words):
            ViTRes(space=space(**changes))
    for settings, words in (
        (dict(out_type='map'), '`out_type` should be one of featmap'),
        (dict(out_indices=(2,)), '`out_indices` should be from -2 to 1'),
        (dict(drop_path_rate=2), '`drop_path_rate` should be from 0 to 1'),
    ):
        with pytest.raises(VitnasError, match=words):
            ViTRes(space=FAMILY.space, **settings)
    with pytest.raises(VitnasError, match=r'images should have shape \(B, 3, H, W\)'):
        ViTRes(space=FAMILY.space)(torch.zeros(1, 1, 56, 56))


def test_tables_are_cut_by_their_axes() -> None:
    names = {name for name in channel_axes(FAMILIES['vit_res'].elastic()) if 'norm' not in name}
    assert {'cls_token', 'pos_embed', 'stages.1.reduction.pos_embed'} <= names


def test_a_flag_is_no_stage() -> None:
    """Also after a price in which 1 stands for it: nothing is remembered of unchecked settings."""
    family = FAMILIES['vit_res']
    family.cls.cost(family.space.largest(), 32, out_indices=(1, 0))
    with pytest.raises(VitnasError, match='`out_indices` should be from'):
        family.cls.cost(family.space.largest(), 32, out_indices=(True, 0))
