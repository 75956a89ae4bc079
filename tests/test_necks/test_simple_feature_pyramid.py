"""The simple feature pyramid: sizes, widths, and extraction of a searched backbone from a model with this neck."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from mmengine.registry import MODELS
from torch import nn

from tests.families import FAMILIES, Family
from tests.stock import mask_rcnn, pyramid
from vitnas_core.backbones import elastic_backbone
from vitnas_core.errors import ArchError, VitnasError
from vitnas_core.extract import check_extracted, extract_model
from vitnas_core.necks import SimpleFeaturePyramid

every_family = pytest.mark.parametrize('family', FAMILIES.values(), ids=FAMILIES.keys())


def shapes(neck: SimpleFeaturePyramid, *size: int, channels: int = 12) -> list[tuple[int, ...]]:
    outs = neck([torch.randn(2, channels, *size, requires_grad=True)])
    assert all(out.isfinite().all() for out in outs)
    return [tuple(out.shape[1:]) for out in outs]


@pytest.mark.parametrize(
    ('size', 'expected'),
    [
        ((8, 12), [(32, 48), (16, 24), (8, 12), (4, 6), (2, 3)]),
        ((5, 7), [(20, 28), (10, 14), (5, 7), (3, 4), (2, 2)]),  # an odd last row stays
        ((1, 2), [(4, 8), (2, 4), (1, 2), (1, 1), (1, 1)]),
    ],
)
def test_sizes(size: tuple[int, int], expected: list[tuple[int, int]]) -> None:
    assert shapes(SimpleFeaturePyramid(12, 6), *size) == [(6, *cells) for cells in expected]


def test_other_scales_and_more_outputs() -> None:
    neck = SimpleFeaturePyramid(12, 6, num_outs=6, scales=(8, 1.0, 0.5, 0.25))
    assert [shape[1:] for shape in shapes(neck, 9, 6)] == [(72, 48), (9, 6), (5, 3), (3, 2), (2, 1), (1, 1)]
    assert len(shapes(SimpleFeaturePyramid(12, 6, num_outs=1, scales=[1]), 4, 4)) == 1


def test_roi_align_reads_the_maps_as_they_are() -> None:
    """mmcv's RoIAlign reads memory as (B, C, H, W) whatever the strides: what it cuts out should be in the map."""
    from mmcv.ops import roi_align

    maps = SimpleFeaturePyramid(12, 6)((torch.randn(1, 12, 8, 12).contiguous(memory_format=torch.channels_last),))
    for level in maps:
        height, width = level.shape[-2:]
        box = torch.tensor([[0.0, 0.0, 0.0, width, height]])
        whole = roi_align(level, box, (1, 1), 1.0, 1, 'avg', True)  # one sample, in the middle
        middle = torch.nn.functional.interpolate(level, size=(1, 1), mode='bilinear', align_corners=False)
        torch.testing.assert_close(whole, middle)


def test_the_last_of_several_maps_is_read() -> None:
    neck = SimpleFeaturePyramid([7, 9, 12], 6, num_outs=4)
    last = torch.randn(1, 12, 3, 4)
    alone = neck((last,))
    several = neck((torch.full((1, 7, 6, 8), torch.nan), torch.full((1, 9, 6, 8), torch.nan), last))
    assert all(torch.equal(a, b) for a, b in zip(alone, several))


def test_widths_are_vitdets() -> None:
    """Half behind one deconvolution, a quarter behind two; 1 × 1 and 3 × 3 convolutions, each with a norm, no bias."""
    neck = SimpleFeaturePyramid(96)
    widths = [
        [(m.in_channels, m.out_channels) for m in part if isinstance(m, nn.ConvTranspose2d)]
        for part in neck.resizes
        if isinstance(part, nn.Sequential)
    ]
    assert widths == [[(96, 48), (48, 24)], [(96, 48)], []]
    assert [type(m).__name__ for m in neck.resizes[0]] == ['ConvTranspose2d', 'LayerNorm2d', 'GELU', 'ConvTranspose2d']
    assert [(c[0].in_channels, c[0].out_channels) for c in neck.convs] == [(24, 256), (48, 256), (96, 256), (96, 256)]
    for convs in neck.convs:
        assert [type(m).__name__ for m in convs] == ['Conv2d', 'LayerNorm2d'] * 2
        assert [(m.kernel_size, m.bias) for m in convs[::2]] == [((1, 1), None), ((3, 3), None)]
    assert len(neck([torch.randn(1, 96, 2, 2)])) == 5
    # The weights of ViTDet's own for a width of 96: deconvolutions and their norm, then four pairs of convolutions.
    deconvolutions = (96 * 48 * 4 + 48) + 2 * 48 + (48 * 24 * 4 + 24) + (96 * 48 * 4 + 48)
    pairs = sum(width * 256 + 256 * 256 * 9 + 4 * 256 for width in (24, 48, 96, 96))
    assert sum(p.numel() for p in neck.parameters()) == deconvolutions + pairs


def test_hidden_channels_take_the_width_of_the_backbone_out_of_all_but_the_first_layers() -> None:
    narrow, wide = (SimpleFeaturePyramid(width, 8, hidden_channels=10) for width in (12, 20))
    differ = [
        name
        for (name, a), (_, b) in zip(narrow.named_parameters(), wide.named_parameters())
        if a.shape != b.shape
    ]  # fmt: skip
    assert differ == ['resizes.0.0.weight', 'resizes.1.0.weight', 'convs.2.0.weight', 'convs.3.0.weight']


def test_every_weight_learns() -> None:
    neck = SimpleFeaturePyramid(12, 6)
    sum(out.square().sum() for out in neck([torch.randn(2, 12, 5, 7)])).backward()
    assert all(p.grad is not None and p.grad.any() for p in neck.parameters())


@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        (dict(scales=(3.0, 1.0)), r'`scales` of SimpleFeaturePyramid should be powers of two, but got \(3.0, 1.0\)'),
        (dict(scales=[]), r'should be powers of two, but got \[\]'),
        (dict(scales=(0.0,)), 'should be powers of two'),
        (dict(scales=(-2.0,)), 'should be powers of two'),
        (dict(num_outs=3), '`num_outs` should be at least 4, as many as scales, but got 3'),
    ],
)
def test_mistakes_are_answered(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(VitnasError, match=message):
        SimpleFeaturePyramid(12, 6, **arguments)


# a supernet in a detector


def detector(family: Family, **neck: Any) -> dict[str, Any]:
    return dict(mask_rcnn(family, pyramid(out_channels=8, **neck), (-1,)), _scope_='mmdet')


def build(cfg: dict[str, Any]) -> nn.Module:
    model = MODELS.build(cfg).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.1)
    return model


@every_family
def test_a_searched_backbone_is_cut_out_of_mask_rcnn(family: Family, rng: np.random.Generator) -> None:
    cfg = detector(family, hidden_channels=6)
    model, images = build(cfg), torch.randn(1, 3, 45, 70)
    for arch in (family.space.smallest(), family.space.sample(rng), family.space.largest()):
        fixed = extract_model(model, cfg, arch)
        assert check_extracted(model, fixed, arch, images) < 1e-5
        (width,) = elastic_backbone(fixed).out_channels()
        assert fixed.neck.resizes[0][0].in_channels == fixed.neck.convs[-1][0].in_channels == width
        strides = [network.rpn_head.prior_generator.strides for network in (model, fixed)]
        assert strides[0] == strides[1]
        elastic_backbone(model).set_arch(arch)
        with torch.no_grad():
            whole, part = (network.rpn_head(network.extract_feat(images)) for network in (model, fixed))
        torch.testing.assert_close(part, whole, rtol=1e-4, atol=1e-5)


@every_family
def test_without_hidden_channels_it_is_refused(family: Family) -> None:
    """ViTDet's widths follow the backbone's: a narrower one has other layers, not a part of these."""
    cfg = detector(family)
    with pytest.raises(ArchError, match=r'neck\.resizes\.0\.0\.weight is .* should become .* hidden_channels of Sim'):
        extract_model(build(cfg), cfg, family.space.smallest())
