"""NASViT beyond the generic contracts: classifiers and dense backbones, windows, scaling, positions and errors."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.families import FAMILIES
from vitnas_core.backbones import NASViT
from vitnas_core.backbones.pretrained import load_pretrained
from vitnas_core.elastic import SwitchableScale, WindowTables
from vitnas_core.errors import ArchError, SpaceError, VitnasError
from vitnas_core.families.nasvit.layers import PublishedScale, TransformerLayer
from vitnas_core.spaces import Arch, SearchSpace
from vitnas_core.utils.counting import count_macs, count_params

FAMILY = FAMILIES['nasvit']
SPACE = FAMILY.space


def changed(space: SearchSpace, change: Any) -> SearchSpace:
    data = copy.deepcopy(space.to_dict())
    change(data)
    return SearchSpace.from_dict(data)


def randomise(model: nn.Module) -> None:
    torch.manual_seed(0)
    for parameter in model.parameters():
        nn.init.normal_(parameter, 0.5 if parameter.ndim == 1 else 0.0, 0.3)


@torch.no_grad()
def test_a_classifier_resizes_and_pools(rng: np.random.Generator) -> None:
    model = NASViT(space=SPACE).eval()
    randomise(model)
    for arch in (SPACE.largest(), SPACE.smallest(), SPACE.sample(rng)):
        model.set_arch(arch)
        fixed, side = model.extract(), arch.choices['resolution']
        for size in ((32, 32), (40, 56)):
            x = torch.randn(2, 3, *size)
            (out,) = model(x)
            assert out.shape == (2, 48, 1, 1)
            width = arch.stages[-1].choices['width']
            assert torch.equal(out[:, :width], fixed(x)[0]) and not out[:, width:].any()
            resized = nn.functional.interpolate(x, (side, side), mode='bicubic') if size != (side, side) else x
            assert torch.equal(model(resized)[0], out)
            cost = fixed.price(arch, size, num_classes=7)
            assert cost.macs == count_macs(fixed, x[:1]) + 7 * width  # whatever the image
            assert cost.params == count_params(fixed) + 7 * (width + 1)


def test_resolutions_share_weights_but_not_the_score() -> None:
    model = NASViT(space=SPACE).eval()
    x, outs = torch.randn(1, 3, 48, 48), []
    for side in (32, 48):
        data = SPACE.largest().to_dict()
        model.set_arch(data | dict(resolution=side))
        outs.append(model(x)[0])
    assert not torch.equal(*outs)


@torch.no_grad()
def test_windows_of_the_architecture_are_those_of_the_size() -> None:
    """Four windows of a square map are windows of half its side."""
    data = SPACE.largest().to_dict()
    data['stages'][2]['num_windows'] = 4
    by_number = NASViT(arch=data, out_indices=(2,)).eval()
    randomise(by_number)
    by_size = NASViT(arch=SPACE.largest(), out_indices=(2,), window_size=6).eval()
    weights = by_number.state_dict()
    by_size.fit_positions(weights)
    by_size.load_state_dict(weights, strict=False)
    x = torch.randn(1, 3, 48, 48)  # a map of 12 × 12
    torch.testing.assert_close(by_number(x)[0], by_size(x)[0])


POSITIONS = (3, 1)
"""The reach of the tables of :func:`attention`, and its number of windows, which their size replaces."""


def attention(width: int = 24, shifted: bool = False) -> TransformerLayer:
    """A layer of windows of 3, every weight of which counts."""
    model = NASViT(arch=SPACE.largest(), out_indices=(2,), window_size=3).eval()
    randomise(model)
    layer = next(m for m in model.modules() if isinstance(m, TransformerLayer))
    layer.attn.shifted = shifted
    return layer


@torch.no_grad()
def test_what_pads_windows_counts_for_nothing() -> None:
    """A map of 4 × 4 in windows of 3: its last row and column are windows of their own tokens alone."""
    attn = attention().attn
    attn.value_conv.weight.zero_()[:, :, 1, 1] = 1.0  # it looks at neighbours, whatever the window
    x = torch.randn(1, 16, 24)
    out = attn(x, (4, 4), *POSITIONS, WindowTables(x.device)).view(4, 4, 24)
    alone = attn(x.view(1, 4, 4, 24)[:, 3:, 3:].flatten(1, 2), (1, 1), *POSITIONS, WindowTables(x.device))
    torch.testing.assert_close(out[3, 3], alone[0, 0])
    row = x.view(1, 4, 4, 24)[:, 3, :3]  # a window of one row
    attn.window_size = None
    torch.testing.assert_close(out[3, :3], attn(row, (1, 3), *POSITIONS, WindowTables(x.device))[0])


@torch.no_grad()
def test_a_shift_puts_no_strangers_together() -> None:
    """The published bias of the second mixing and the convolution of values would see across the seam."""
    attn, x = attention(shifted=True).attn, torch.randn(1, 81, 24)
    first = attn(x, (9, 9), *POSITIONS, WindowTables(x.device)).view(9, 9, 24)
    far = x.view(1, 9, 9, 24).clone()
    far[:, 6:] += 1.0
    moved = (attn(far.flatten(1, 2), (9, 9), *POSITIONS, WindowTables(x.device)).view(9, 9, 24) - first).abs().amax(
        -1
    ) > 1e-6
    assert moved[6:].all() and not moved[:3].any()


@torch.no_grad()
def test_tokens_of_other_windows_do_not_meet() -> None:
    """Masks hold under every shift, and for windows that are padded."""
    layer = attention()
    layer.attn.value_conv.weight.zero_()[:, :, 1, 1] = 1.0  # it looks at neighbours
    x = torch.randn(1, 49, 24)
    for shifted in (False, True):
        layer.attn.shifted = shifted
        first = layer.attn(x, (7, 7), *POSITIONS, WindowTables(x.device))
        assert first.shape == x.shape
        far = x.clone()
        far[:, -1] += 1.0  # the corner below on the right
        moved = (layer.attn(far, (7, 7), *POSITIONS, WindowTables(x.device)) - first).abs().amax(-1).view(7, 7) > 0
        assert moved[-1, -1] and not moved[:3].any() and not moved[:, :3].any()


@torch.no_grad()
def test_distances_beyond_the_table_take_its_end() -> None:
    model = NASViT(arch=SPACE.smallest(), out_indices=(-1,)).eval()
    randomise(model)
    layer = [m for m in model.modules() if isinstance(m, TransformerLayer)][-1]
    reach = (layer.attn.table.shape[1] + 1) // 2
    bias = layer.attn.bias(1, reach + 3, 2, reach, WindowTables(torch.device('cpu')))
    assert torch.equal(bias[:, 0, reach - 1], bias[:, 0, -1]) and not torch.equal(bias[:, 0, 1], bias[:, 0, -1])


def test_scaling_is_private_to_a_width() -> None:
    """Training one width leaves the vectors of others alone, and those of a width begin at 1e-4."""
    model = NASViT(space=SPACE)
    model.set_arch(SPACE.smallest())
    model(torch.randn(2, 3, 32, 32))[0].sum().backward()
    scales = {name: m for name, m in model.named_modules() if isinstance(m, SwitchableScale)}
    assert scales
    present = 0
    for name, scale in scales.items():
        for width, vector in scale.vectors.items():
            assert vector.shape == (int(width),) and (vector == 1e-4).all()
            stage, block = int(name.split('.')[1]), int(name.split('.')[3])
            there = block < len(SPACE.smallest().stages[stage + 1].blocks)
            active = there and int(width) == SPACE.smallest().stages[stage + 1].choices['width']
            assert (vector.grad is not None) == active
            present += active
    assert present
    assert not any(isinstance(m, SwitchableScale) for m in NASViT(space=SPACE, scaling=False).modules())


def test_a_dense_backbone_takes_a_classifier_s_weights(tmp_path: Path) -> None:
    """MBPool is left out; tables of positions are cut to windows, or interpolated where they are smaller."""
    classifier = NASViT(space=SPACE)
    randomise(classifier)
    torch.save(dict(state_dict=classifier.state_dict()), tmp_path / 'supernet.pth')
    for size in (3, 20):
        init = dict(type='Pretrained', checkpoint=str(tmp_path / 'supernet.pth'))
        dense = NASViT(arch=SPACE.smallest(), out_indices=(2, 3), window_size=size, init_cfg=init)
        dense.init_weights()
        own, stored = dict(dense.named_parameters()), dict(classifier.named_parameters())
        for name, tensor in own.items():
            if not name.endswith('table'):
                assert (
                    torch.equal(tensor, stored[name][tuple(slice(0, n) for n in tensor.shape)]) or 'depthwise' in name
                )
        table = own['stages.2.blocks.1.attn.table']
        assert table.shape[1] == 2 * size - 1
        assert torch.equal(table, stored['stages.2.blocks.1.attn.table'][: len(table), :5, :5]) == (size == 3)


def test_a_dense_backbone_runs_any_head() -> None:
    """It has no MBPool, so that no choice of the last stage can misfit."""
    data = SPACE.largest().to_dict()
    data['stages'][-1].update(expand_ratio=99)
    dense, classifier = NASViT(space=SPACE, out_indices=(2, 3)), NASViT(space=SPACE)
    dense.set_arch(data)
    with pytest.raises(ArchError, match='expand_ratio is 99'):
        classifier.set_arch(data)


def test_published_scaling_vectors_are_in_the_order_of_depths() -> None:
    """Whatever their names: the states of optimizers go by the order of parameters."""
    slots = [(depth, tokens) for depth in (2, 9, 10) for tokens in (1, 4)]
    assert list(PublishedScale(slots, 8).vectors) == [f'{depth}-{tokens}' for depth, tokens in slots]


@pytest.mark.parametrize('window_size', [None, 2, 5, 7, 20])
def test_positions_do_not_depend_on_the_route(window_size: int | None, tmp_path: Path) -> None:
    """From the supernet's file, or from that of the network that was extracted from it."""
    supernet, arch = NASViT(space=SPACE), SPACE.smallest()
    randomise(supernet)
    torch.save(supernet.state_dict(), tmp_path / 'supernet.pth')
    torch.save(supernet.extract(arch).state_dict(), tmp_path / 'fixed.pth')
    found = []
    for name in ('supernet.pth', 'fixed.pth'):
        dense = NASViT(arch=arch, out_indices=(-1,), window_size=window_size)
        load_pretrained(dense, tmp_path / name)
        found.append(dense.state_dict())
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])


def test_kernels_are_cut_to_their_centre() -> None:
    model = NASViT(space=SPACE)
    fixed = model.extract(SPACE.smallest())
    whole, part = (m.stage_blocks()[1][0].depthwise.weight for m in (model, fixed))
    assert part.shape[-1] == 3 and torch.equal(part, whole[: len(part), :, 1:4, 1:4])


@pytest.mark.parametrize(
    ('change', 'words'),
    [
        (lambda d: d['stages'][1].update(stride=[1, 2]), 'stages[1].stride of the NASViT space should have one option'),
        (lambda d: d['stages'][2].update(expand_ratio=[1, 2]), 'should be 1 or larger numbers'),
        (
            lambda d: d['stages'][0].update(width=[24, 16]),
            'stages[0].width of the NASViT space should list numbers, s',
        ),
        (lambda d: d['stages'][2].update(num_windows=[3]), 'num_windows should be a square'),
        (lambda d: d['stages'][2].update(width=[16, 20]), 'width of a transformer stage should be a multiple of 8'),
        (lambda d: d['stages'][1].update(kernel_size=[4]), 'kernel_size should be odd'),
        (lambda d: d['stages'][1].update(kernel_size=[3, 4, 5]), 'stages[1].kernel_size should be odd, but got 4'),
        (
            lambda d: d['stages'][2].update(width=[16, 20, 24]),
            'stages[2].width of a transformer stage should be',
        ),
        (lambda d: d['stages'][2].update(num_windows=[4, 2, 1]), 'stages[2].num_windows should be a square'),
        (lambda d: d['stages'][2].update(stride=[3]), 'stages[2].stride should be 1 or 2, but got 3'),
        (lambda d: d['stages'][1].update(se=[2]), 'se should be 0 or 1'),
        (lambda d: d['stages'][1].pop('se'), 'stages[1].se is missing'),
        (lambda d: d['stages'][0].update(depth=1, block={}), 'stem and head have none'),
        (lambda d: d['stages'][1].update(depth=[0, 1]), 'stages[1].blocks should have at least one'),
        (lambda d: d.pop('resolution'), 'resolution is missing'),
        (lambda d: d['stages'].__delitem__(slice(0, 3)), 'a stem, stages and a head'),
    ],
)
def test_spaces_that_are_none(change: Any, words: str) -> None:
    with pytest.raises((ArchError, SpaceError)) as err:
        NASViT(space=changed(SPACE, change))
    assert words in str(err.value)


def test_settings_that_are_none() -> None:
    with pytest.raises(VitnasError, match='`window_size` should be a whole number of at least 1'):
        NASViT(space=SPACE, window_size=0)
    with pytest.raises(VitnasError, match='`window_size` should be a whole number of at least 1'):
        NASViT.cost(SPACE.largest(), window_size=-3)
    with pytest.raises(VitnasError, match="`scaling` should be True or False, but got 'no'"):
        NASViT(space=SPACE, scaling='no')
    with pytest.raises(VitnasError, match='`drop_path_rate` should be from 0 to 1'):
        NASViT(space=SPACE, drop_path_rate=2)
    with pytest.raises(VitnasError, match=r'images should have shape \(B, 3, H, W\)'):
        NASViT(space=SPACE)(torch.zeros(3, 32, 32))


@pytest.mark.parametrize(
    ('settings', 'change', 'words'),
    [
        ({}, lambda d: d['stages'][2].update(width=8), 'stages[2].width is 8; there are scaling vectors for 16, 24'),
        (dict(official=True), lambda d: d.update(resolution=40), 'tokens modulo 8; there are scaling vectors for'),
    ],
)
def test_widths_without_scaling_vectors(settings: dict[str, Any], change: Any, words: str) -> None:
    model, data = NASViT(space=SPACE, **settings), SPACE.largest().to_dict()
    change(data)
    with pytest.raises(ArchError) as err:
        model.set_arch(Arch.from_dict(data))
    assert words in str(err.value)
