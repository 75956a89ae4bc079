"""``tools/analysis/get_flops.py`` finds the numbers of the papers, and the reasons where they differ.

Papers: S3 (arXiv 2111.14725) Tab. 2 and 3, ViTAS (arXiv 2106.13700) Tab. 7 and 8, which quote numbers of Twins.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from mmengine.config import Config
from mmengine.hub import get_config
from mmengine.registry import MODELS
from mmengine.structures import InstanceData

from tools.analysis import get_flops
from vitnas_core import zoo
from vitnas_core.backbones import S3, AutoFormer
from vitnas_core.costs import Cost
from vitnas_core.errors import VitnasError
from vitnas_core.model_configs import model_config

ROOT = Path(__file__).resolve().parent.parent.parent
DETECTION, SEGMENTATION = (ROOT / 'projects' / task / 'configs' for task in ('detection', 'segmentation'))
CASCADE = f'{DETECTION}/cascade_rcnn/cascade-mask-rcnn_s3-{{}}_fpn_1x_coco.py'
MASK_RCNN = f'{DETECTION}/mask_rcnn/mask-rcnn_s3-t_fpn_1x_coco.py'
UPERNET = f'{SEGMENTATION}/s3/s3-{{}}_upernet_8xb2-160k_ade20k-512x512.py'
SWIN_UPERNET = 'mmseg::swin/swin-tiny-patch4-window7-in1k-pre_upernet_8xb2-160k_ade20k-512x512.py'
SWIN_MASK_RCNN, SWIN_RETINANET = (
    f'mmdet::swin/{name}_swin-t-p4-w7_fpn_1x_coco.py' for name in ('mask-rcnn', 'retinanet')
)
TWINS_FPN = 'mmseg::twins/twins_svt-s_fpn_fpnhead_8xb4-80k_ade20k-512x512.py'
TWINS_UPERNET = 'mmseg::twins/twins_svt-s_uperhead_8xb2-160k_ade20k-512x512.py'
# mmdet has no Cascade Mask R-CNN on Swin with these heads; the defaults of its Swin are T.
WITH_SWIN = '--cfg-options model.backbone._delete_=True model.backbone.type=SwinTransformer'
WITH_SWIN += ' model.neck.in_channels=96,192,384,768'

CASCADE_SHAPE, WIDE, CROP, TWINS_SHAPE = '800 1280', '512 2048', '512', '800 600'

UNUSED_CLASSIFIER = 512 * 1000 + 1000
"""Parameters of a layer that Twins' code keeps in Twins-SVT-S for every task, and mmseg's does not."""

DECONVOLUTION = 3 * 100 * 14 * 14 * 4 * 256 * 256
"""What Twins' table has more for Mask R-CNN, whatever the backbone.

The mask head's deconvolution is counted with all 2 × 2 products at each of the 28 × 28 places of its output, where one
of them falls: four times what 100 masks execute. This is inferred, no published code says so. It fits the rows of
Swin-T and -S, Twins-SVT-S, -B and -L, ResNet-50 and -101 to 0.6 %; 2000 boxes instead of 1000 (14.3 G more) would fit
to 1.2 %.
"""


@cache
def costs(config: str, shape: str, options: str = '') -> dict[str, Cost]:
    return get_flops.main([config, '--shape', *shape.split(), *options.split()])


@pytest.mark.parametrize(
    ('config', 'shape', 'options', 'params', 'macs'),
    [
        pytest.param(CASCADE.format('t'), CASCADE_SHAPE, '', 86, 748, id='cascade-s3-t'),
        pytest.param(CASCADE.format('s'), CASCADE_SHAPE, '', 107, 855, id='cascade-s3-s'),
        pytest.param(CASCADE.format('b'), CASCADE_SHAPE, '', 128, 947, id='cascade-s3-b'),
        pytest.param(CASCADE.format('t'), CASCADE_SHAPE, WITH_SWIN, 86, 745, id='cascade-swin-t'),
        pytest.param(UPERNET.format('t'), WIDE, '', 60, 954, id='upernet-s3-t'),
        pytest.param(UPERNET.format('s'), WIDE, '', 81, 1071, id='upernet-s3-s'),
        pytest.param(SWIN_UPERNET, WIDE, '', 60, 945, id='upernet-swin-t'),
        pytest.param(SWIN_UPERNET, CROP, '', 59.9, 237, id='upernet-swin-t-crop'),
        pytest.param(SWIN_RETINANET, TWINS_SHAPE, '', 38.5, 118, id='retinanet-swin-t'),
    ],
)
def test_printed_numbers(config: str, shape: str, options: str, params: float, macs: float) -> None:
    """Millions and billions, to 1 %; nothing has to be explained.

    UperNet's parameters are printed with the auxiliary head (59.0 M without), its MACs without: it does not run at
    inference, and 0.94 G more would be printed as 238 G at 512 × 512.
    """
    total = costs(config, shape, options)['total']
    assert total.params / 1e6 == pytest.approx(params, rel=0.01)
    assert total.macs / 1e9 == pytest.approx(macs, rel=0.01)


def test_swin_mask_rcnn() -> None:
    total = costs(SWIN_MASK_RCNN, TWINS_SHAPE)['total']
    assert total == Cost(47_794_602, 161_834_264_320)
    assert total.params / 1e6 == pytest.approx(47.8, rel=0.01)
    assert (total.macs + DECONVOLUTION) / 1e9 == pytest.approx(177, rel=0.01)


def test_swin_mask_rcnn_at_full_size() -> None:
    """Swin's repository prints 48 M and 267 G at 800 × 1280: there the deconvolution is counted as it is executed."""
    assert costs(SWIN_MASK_RCNN, CASCADE_SHAPE)['total'].macs / 1e9 == pytest.approx(267, rel=0.01)


def test_twins_upernet() -> None:
    total = costs(TWINS_UPERNET, CROP)['total']
    assert total == Cost(53_856_300, 227_783_703_168)
    assert (total.params + UNUSED_CLASSIFIER) / 1e6 == pytest.approx(54.4, rel=0.01)
    assert total.macs / 1e9 == pytest.approx(228, rel=0.01)


def test_twins_semantic_fpn() -> None:
    """The column of Semantic FPN is without attention products (37 G; 38.6 G with), that of UperNet with them."""
    total = costs(TWINS_FPN, CROP)['total']
    assert total == Cost(27_798_934, 38_628_457_088)
    products = 0
    for width, side, depth in ((64, 128, 2), (128, 64, 2), (256, 32, 10), (512, 16, 4)):
        windows, keys = (side + -side % 7) ** 2, 16**2  # half of the blocks attend in windows, half to 16 × 16 keys
        products += depth // 2 * 2 * width * (windows * 49 + side**2 * keys)
    assert (total.params + UNUSED_CLASSIFIER) / 1e6 == pytest.approx(28.3, rel=0.01)
    assert (total.macs - products) / 1e9 == pytest.approx(37, rel=0.01)


@pytest.mark.parametrize(
    ('detector', 'more', 'exact', 'params', 'macs'),
    [
        ('mask_rcnn/mask-rcnn', DECONVOLUTION, Cost(43_699_696, 148_317_447_936), 44.0, 164),
        ('retinanet/retinanet', 0, Cost(33_782_260, 103_596_532_736), 34.3, 104),
    ],
)
def test_twins_detectors(
    detector: str, more: int, exact: Cost, params: float, macs: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twins' code drops the last column of maps of odd width as it merges patches: 75 → 37, mmseg's pads to 38."""
    from mmseg.models.backbones import twins

    cfg = get_config(f'mmdet::{detector}_r50_fpn_1x_coco.py')
    cfg.model.backbone = {**get_config(TWINS_FPN).model.backbone, 'type': 'mmseg.SVT'}
    cfg.model.neck.in_channels = [64, 128, 256, 512]
    padding = get_flops.count(cfg, (800, 600))['total']
    embed = twins.PatchEmbed
    monkeypatch.setattr(twins, 'PatchEmbed', lambda **kwargs: embed(**{**kwargs, 'padding': 0}))
    dropping = get_flops.count(cfg, (800, 600))['total']
    assert dropping == exact and padding.macs > exact.macs
    assert (dropping.params + UNUSED_CLASSIFIER) / 1e6 == pytest.approx(params, rel=0.01)
    assert (dropping.macs + more) / 1e9 == pytest.approx(macs, rel=0.01)


def test_parts_add_up(capsys: pytest.CaptureFixture) -> None:
    parts = dict(get_flops.main([CASCADE.format('t')]))
    out = capsys.readouterr().out
    assert '800 x 1280' in out and f'{parts["total"].macs:,}' in out
    total = parts.pop('total')
    assert list(parts) == ['backbone', 'neck', 'rpn_head', 'roi_head.bbox_head', 'roi_head.mask_head']
    assert total == Cost(sum(cost.params for cost in parts.values()), sum(cost.macs for cost in parts.values()))
    assert parts['backbone'] == S3.cost('s3-t', (800, 1280), out_indices=(0, 1, 2, 3))
    # Three stages; 1000 boxes of 7 × 7 and 100 masks of 14 × 14.
    convs, outputs = 4 * 9 * 256 * 256, 1024 * (81 + 4 * 80)
    assert parts['roi_head.bbox_head'].macs == 3 * 1000 * (49 * convs + 49 * 256 * 1024 + outputs)
    assert parts['roi_head.mask_head'].macs == 3 * 100 * 196 * (convs + 4 * 256 * 256 + 4 * 256 * 80)
    half = costs(CASCADE.format('t'), CASCADE_SHAPE, '--proposals 500')
    assert half['roi_head.bbox_head'].macs * 2 == parts['roi_head.bbox_head'].macs
    assert half['roi_head.mask_head'] == parts['roi_head.mask_head']


def test_auxiliary_head_does_not_run() -> None:
    parts = costs(UPERNET.format('t'), CROP)
    assert parts['auxiliary_head'].params > 0 and parts['auxiliary_head'].macs == 0
    assert parts['backbone'].macs + parts['decode_head'].macs == parts['total'].macs


def test_classifier() -> None:
    entry = zoo.entry('s3-t')
    config = ROOT / 'projects/classification/configs/s3/s3-t_retrain_8xb128-300e_imagenet.py'
    assert get_flops.main([str(config)])['total'] == Cost(entry.params, entry.macs)


def test_products_of_relative_positions(capsys: pytest.CaptureFixture) -> None:
    """They are executed, and so counted; AutoFormer's paper leaves them out."""
    config = f'{SEGMENTATION}/autoformer/autoformer-small_fpn_8xb4-80k_ade20k-512x512.py'
    settings = ['model.backbone.reach=0']
    printed = AutoFormer.cost('autoformer-small', 512, img_size=512).macs
    assert get_flops.main([config])['backbone'].macs > printed
    assert f'the backbone has {printed:,} MACs' in capsys.readouterr().out
    assert get_flops.main([config, '--cfg-options', *settings])['backbone'].macs == printed
    assert 'convention' not in capsys.readouterr().out


def test_shapes_give_what_a_real_run_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    """mmdet's own forward, with its RoIAlign, on as many boxes as its region proposals are made to find."""
    cfg, shape, boxes = Config.fromfile(MASK_RCNN), (64, 96), torch.tensor([[4.0, 4.0, 60.0, 40.0]] * 7)
    model: Any = MODELS.build(model_config(cfg)).eval().requires_grad_(False)

    def propose(features: Any, *_: Any, **__: Any) -> list[InstanceData]:
        model.rpn_head(features)
        return [InstanceData(bboxes=boxes)]

    monkeypatch.setattr(model.rpn_head, 'predict', propose)
    with get_flops.FlopCounterMode(display=False) as counter, get_flops.sdpa_kernel(get_flops.SDPBackend.MATH):
        model(torch.zeros(1, 3, *shape), [InstanceData()], mode='tensor')
    assert get_flops.count(cfg, shape, len(boxes))['total'].macs == counter.get_total_flops() // 2


def test_what_needs_numbers_runs_on_them() -> None:
    """The sizes of Deformable DETR's maps are a tensor, which has no values where only shapes are computed."""
    cfg = get_config('mmdet::deformable_detr/deformable-detr_r50_16xb2-50e_coco.py')
    parts = get_flops.count(cfg, (64, 64))
    assert parts['encoder'].macs > 0 and parts['decoder'].macs > 0


def test_no_weights_are_loaded() -> None:
    options = 'model.backbone.init_cfg.type=Pretrained model.backbone.init_cfg.checkpoint=nowhere.pth'
    assert costs(MASK_RCNN, '64', f'--cfg-options {options}') == costs(MASK_RCNN, '64')
    cfg = dict(pretrained='nowhere.pth', backbone=[dict(pretrained=True), dict(pretrained=False, depth=(1, 2))])
    off = dict(pretrained=None, backbone=[dict(pretrained=False), dict(pretrained=False, depth=(1, 2))])
    assert get_flops._without_weights(cfg) == off


@pytest.mark.parametrize(
    ('args', 'message'),
    [
        (['nowhere.py'], 'there is no config file nowhere.py'),
        (['mmdet::swin/nowhere.py'], 'there is no stock config mmdet::swin/nowhere.py: FileNotFoundError'),
        ([MASK_RCNN, '--cfg-options', 'model.backbone.arch=s3-x'], "'s3-x' is neither a file nor an architecture"),
        ([MASK_RCNN, '--cfg-options', 'model.backbone.depth=3'], '`model` of .* cannot be built: TypeError: .*depth'),
        (['mmdet::htc/htc_r50_fpn_1x_coco.py'], 'HybridTaskCascadeRoIHead of HybridTaskCascade would not be counted'),
        (['mmdet::panoptic_fpn/panoptic-fpn_r50_fpn_1x_coco.py'], 'semantic_head of PanopticFPN would not be counted'),
        (['mmdet::dcn/faster-rcnn_r50-dconv-c3-c5_fpn_1x_coco.py'], 'a DeformConv2dPack, an operator of mmcv that'),
        (
            ['mmpretrain::inception_v3/inception-v3_8xb32_in1k.py', '--shape', '8'],
            'does not run on one image of 8 x 8: R',
        ),
    ],
)
def test_mistakes(args: list[str], message: str) -> None:
    with pytest.raises(VitnasError, match=message):
        get_flops.main(args)


@pytest.mark.parametrize('option', ['--shape=0', '--proposals=0'])
def test_numbers_below_one(option: str, capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit):
        get_flops.main([MASK_RCNN, option])
    assert f'{option.partition("=")[0]} should be' in capsys.readouterr().err
