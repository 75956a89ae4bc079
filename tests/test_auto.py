"""``'auto'`` in configs: channels and strides are those that the built model computes, wherever it is built."""

from __future__ import annotations

import copy
import math
import os
import runpy
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import mmdet
import mmseg
import numpy as np
import pytest
import torch
from mmdet.registry import MODELS as DET_MODELS
from mmengine.config import Config, ConfigDict
from mmengine.registry import MODELS, DefaultScope, Registry, build_model_from_cfg
from mmpretrain.registry import MODELS as CLS_MODELS
from mmseg.registry import MODELS as SEG_MODELS
from torch import Tensor, nn

from tests.families import FAMILIES, Family
from tests.stock import BN, backbone_cfg, fpn, fpn_segmentor, mask_rcnn, pyramid, retinanet, stock, upernet
from tests.test_models import classifier, segmentor
from vitnas_core import auto
from vitnas_core.auto import fill_auto
from vitnas_core.datasets import write_scenes
from vitnas_core.errors import VitnasError
from vitnas_core.integration.model_build import build_model, fill_auto_when_built
from vitnas_core.model_configs import fixed_config, model_config
from vitnas_core.registry import MODELS as OUR_MODELS

every_family = pytest.mark.parametrize('family', FAMILIES.values(), ids=FAMILIES.keys())
ODD = (75, 107)
NEEDS = 'which needs a backbone of vitnas in the model'


# channels


def test_a_head_gets_the_channels_of_the_last_output() -> None:
    given = ConfigDict(classifier())
    filled = fill_auto(given)
    assert filled.head.in_channels == 72 and isinstance(filled, ConfigDict)
    assert given.head.in_channels == 'auto'
    fixed = copy.deepcopy(given)
    fixed.backbone = dict(type='vitnas.AutoFormer', arch='autoformer-tiny')
    assert fill_auto(fixed).head.in_channels == 192


def test_heads_by_index_and_necks_with_all() -> None:
    filled = fill_auto(segmentor())
    assert filled['decode_head']['in_channels'] == [80, 80] and filled['auxiliary_head']['in_channels'] == 80
    several = dict(
        backbone=backbone_cfg(out_indices=(0, 1)), neck=dict(in_channels='auto', out_channels=16, num_outs=5)
    )
    several['bbox_head'] = dict(in_channels='auto', nested=[dict(in_channels='auto', in_index=[0, 4])])
    filled = fill_auto(several)
    assert filled['neck']['in_channels'] == [72, 72]
    assert filled['bbox_head'] == dict(in_channels=16, nested=[dict(in_channels=[16, 16], in_index=[0, 4])])
    one = dict(backbone=backbone_cfg(), neck=[dict(in_channels='auto', out_channels=16), dict(in_channels='auto')])
    assert [neck['in_channels'] for neck in fill_auto(one)['neck']] == [72, 16]


def test_necks_of_many_maps_get_a_list_of_one_others_a_number() -> None:
    def filled(**neck: Any) -> Any:
        return fill_auto(dict(backbone=backbone_cfg(), neck=dict(in_channels='auto', **neck)))['neck']['in_channels']

    assert filled(type='mmdet.ChannelMapper', out_channels=8, num_outs=1) == [72]
    assert filled(type='mmdet.ChannelMapper') == filled(type='mmseg.MultiLevelNeck', out_channels=8) == [72]
    assert filled(type='mmdet.FPN', out_channels=8, num_outs=3) == [72]
    assert filled(type='mmdet.DilatedEncoder', out_channels=8) == filled(type='mmpretrain.LinearNeck') == 72


def test_models_of_others_are_left_alone() -> None:
    resnet = dict(backbone=dict(type='mmpretrain.ResNet', depth=18), head=dict(in_channels=512))
    assert fill_auto(resnet) == resnet
    resnet['head'] = dict(type='LinearClsHead', in_channels='auto')
    with pytest.raises(VitnasError, match=f"in_channels of LinearClsHead is 'auto', {NEEDS}"):
        fill_auto(resnet)
    with pytest.raises(VitnasError, match='ImageClassifier has no backbone of vitnas'):
        fixed_config(dict(resnet, type='ImageClassifier'), 'autoformer-tiny')


@pytest.mark.parametrize('key', ['in_channels', 'feature_strides'])
def test_an_output_that_there_is_not(key: str) -> None:
    cfg = segmentor()
    cfg['auxiliary_head'].update({'in_index': 2, key: 'auto'})
    with pytest.raises(VitnasError, match=r'in_index of mmseg.FCNHead is 2, but there are 2 features to read'):
        fill_auto(cfg)
    cfg['auxiliary_head']['in_index'] = [0, -3]
    with pytest.raises(VitnasError, match=r'in_index of mmseg.FCNHead is \[0, -3\], but there are 2 features'):
        fill_auto(cfg)
    neck = dict(type='mmdet.FPN', in_channels='auto', out_channels=8, num_outs=2, start_level=2)
    with pytest.raises(VitnasError, match='mmdet.FPN .* one of the 2 features, .* start_level=2, end_level=-1'):
        fill_auto(dict(backbone=backbone_cfg(out_indices=(0, 1)), neck=neck))


def test_what_is_not_auto_stays() -> None:
    parts = dict(in_channels=None, strides=np.array([4, 8]), featmap_strides=[4], feature_strides=None)
    cfg = dict(backbone=backbone_cfg(), head=dict(parts, first=dict(in_channels='auto'), train_cfg=None))
    filled = fill_auto(cfg)['head']
    assert filled['first'] == dict(in_channels=72) and filled['strides'].tolist() == [4, 8]
    assert filled['in_channels'] is None and filled['featmap_strides'] == [4] and filled['feature_strides'] is None


# strides: those that necks of every kind make


NECKS: dict[str, tuple[tuple[int, ...], Any]] = {
    'none': ((0, -1), None),
    'fpn': ((0, -1), fpn()),
    'fpn-no-more': ((0, -1), fpn(num_outs=2)),
    'fpn-extra-convs': ((0, -1), fpn(start_level=1, add_extra_convs='on_input')),
    'fpn-extra-convs-on-output': ((0, -1), fpn(start_level=0, add_extra_convs='on_output', num_outs=4)),
    'fpn-end': ((0, -1), fpn(end_level=0, num_outs=1)),
    'fpn-one': ((-1,), fpn(num_outs=3)),
    'fpn-mmseg': ((0, -1), fpn('mmseg.FPN', num_outs=4)),
    'channel-mapper': ((-1,), fpn('mmdet.ChannelMapper', num_outs=4, kernel_size=1)),
    'fpn-bfp': ((0, -1), [fpn(), dict(type='mmdet.BFP', in_channels='auto', num_levels=5)]),
    'pyramid': ((-1,), pyramid()),
    'pyramid-of-several': ((0, -1), pyramid(out_channels=8)),
    'pyramid-scales': ((-1,), pyramid(out_channels=8, num_outs=4, scales=(2.0, 1.0, 0.25))),
    'pyramid-up': ((0, -1), pyramid(out_channels=8, num_outs=2, scales=[8, 4], hidden_channels=4)),
    'feature2pyramid': ((-1,) * 4, dict(type='mmseg.Feature2Pyramid', norm_cfg=BN)),
    'feature2pyramid-down': ((-1,) * 4, dict(type='mmseg.Feature2Pyramid', rescales=[2, 1, 0.5, 0.25], norm_cfg=BN)),
    'multilevel': ((-1,), dict(type='mmseg.MultiLevelNeck', in_channels='auto', out_channels=8)),
    'multilevel-2': ((0, -1), dict(type='mmseg.MultiLevelNeck', in_channels='auto', out_channels=8, scales=[2, 0.5])),
}


def with_parts(family: Family, out_indices: Sequence[int], neck: Any, levels: Sequence[int]) -> dict[str, Any]:
    """A config that asks for everything."""
    neck = copy.deepcopy(neck)
    backbone = backbone_cfg(family, out_indices=out_indices)
    if isinstance(neck, dict) and neck['type'] == 'mmseg.Feature2Pyramid':
        neck['embed_dim'] = family.elastic(out_indices=out_indices).out_channels()[-1]
    return dict(
        backbone=backbone,
        **(dict(neck=neck) if neck else {}),
        anchors=dict(strides='auto'),
        rois=dict(extractor=dict(featmap_strides='auto')),
        last=dict(in_channels='auto', feature_strides='auto'),
        heads=[dict(in_channels='auto', feature_strides='auto', in_index=list(levels))],
    )


@every_family
@pytest.mark.parametrize('name', NECKS)
def test_what_necks_make(family: Family, name: str) -> None:
    out_indices, neck = NECKS[name]
    model = MODELS.build(backbone_cfg(family, out_indices=out_indices))
    filled = fill_auto(with_parts(family, out_indices, neck, (0, -1)))
    layers = MODELS.build(filled['neck']) if neck else nn.Identity()
    height, width = 16 * family.stride, 32 * family.stride  # multiples of every stride
    image = torch.randn(1, 3, height, width)
    with torch.no_grad():
        own = model(image)
        features = layers(own)
    channels, strides = [f.shape[1] for f in features], [height / f.shape[2] for f in features]
    assert strides == [width / f.shape[3] for f in features] == filled['anchors']['strides']
    assert all(isinstance(s, int) for s in filled['anchors']['strides'] if s == int(s))
    assert filled['last'] == dict(in_channels=channels[-1], feature_strides=strides[-1])
    assert filled['heads'][0]['in_channels'] == [channels[0], channels[-1]]
    assert filled['heads'][0]['feature_strides'] == [strides[0], strides[-1]]
    roi = filled['rois']['extractor']['featmap_strides']
    assert roi == strides[: len(roi)] and 1 <= len(roi) <= len(strides)


def test_extractors_read_the_maps_of_the_backbone_only() -> None:
    def levels(neck: dict[str, Any], **backbone: Any) -> tuple[int, int]:
        asked = dict(strides='auto', featmap_strides='auto')
        filled = fill_auto(dict(backbone=backbone_cfg(FAMILIES['s3'], **backbone), neck=neck, x=asked))['x']
        return len(filled['featmap_strides']), len(filled['strides'])

    assert levels(fpn(), out_indices=(0, 1)) == (2, 5)
    assert levels(fpn(start_level=1), out_indices=(0, 1)) == (1, 5)
    assert levels(pyramid()) == (4, 5)
    assert levels(pyramid(scales=[1.0], num_outs=2)) == (1, 2)


# whole models from stock configs


def assert_maps(maps: Sequence[Tensor], strides: Sequence[float], size: tuple[int, int], base: int) -> None:
    """Every map covers the image and not much more: a cell, or the cell of the map that it was enlarged from."""
    assert len(maps) == len(strides)
    for features, stride in zip(maps, strides):
        for cells, side in zip(features.shape[-2:], size):
            assert 0 <= cells * stride - side < max(stride, base)


@every_family
@pytest.mark.parametrize(
    ('neck', 'out_indices'), [(fpn(), (0, -1)), (pyramid(out_channels=8), (-1,))], ids=['fpn', 'pyramid']
)
def test_mask_rcnn_from_the_stock_config(family: Family, neck: dict, out_indices: tuple[int, ...]) -> None:
    from mmdet.testing import demo_mm_inputs

    cfg = mask_rcnn(family, neck, out_indices)
    given = copy.deepcopy(cfg)
    with DefaultScope.overwrite_default_scope('mmdet'):
        model = DET_MODELS.build(cfg)
    assert cfg == given  # the caller's config is as it was
    strides = [pair[0] for pair in model.rpn_head.prior_generator.strides]
    maps = model.extract_feat(torch.randn(1, 3, *ODD))
    assert_maps(maps, strides, ODD, model.backbone.out_strides()[-1])
    expected = family.elastic(out_indices=out_indices).out_strides()
    if neck['type'].startswith('vitnas'):
        expected = [expected[0] / scale for scale in (4, 2, 1, 0.5)]
    for part in ('bbox', 'mask'):
        assert getattr(model.roi_head, f'{part}_roi_extractor').featmap_strides == list(expected)
    assert strides[: len(expected)] == list(expected)
    assert [b / a for a, b in zip(strides[len(expected) - 1 :], strides[len(expected) :])] == [2] * (5 - len(expected))
    inputs = demo_mm_inputs(2, [[3, *ODD], [3, 61, 90]], num_items=[2, 1], num_classes=3, with_mask=True)
    batch = model.data_preprocessor(inputs, training=True)
    loss, _ = model.parse_losses(model.loss(batch['inputs'], batch['data_samples']))
    loss.backward()
    assert loss.isfinite()
    assert all(p.grad.isfinite().all() for p in model.backbone.parameters() if p.grad is not None)
    assert len(model.eval().test_step(inputs)) == 2


@every_family
def test_retinanet_from_the_stock_config(family: Family) -> None:
    model = MODELS.build(dict(retinanet(family), _scope_='mmdet')).eval()
    last = family.elastic().out_strides()[-1]
    assert [pair[0] for pair in model.bbox_head.prior_generator.strides] == [last * 2**i for i in range(5)]
    with torch.no_grad():
        scores, boxes = model(torch.randn(1, 3, *ODD), mode='tensor')
    assert_maps(scores, [last * 2**i for i in range(5)], ODD, last)
    anchors = model.bbox_head.prior_generator.grid_priors([s.shape[-2:] for s in scores], device='cpu')
    assert [len(a) for a in anchors] == [b.shape[1] // 4 * math.prod(b.shape[-2:]) for b in boxes]


@every_family
@pytest.mark.parametrize('make', [upernet, fpn_segmentor])
def test_segmentors_from_the_stock_configs(family: Family, make: Any) -> None:
    with DefaultScope.overwrite_default_scope('mmseg'):
        model = SEG_MODELS.build(make(family)).eval()
    with torch.no_grad():
        maps = model.extract_feat(torch.randn(1, 3, *ODD))
        logits = model.encode_decode(torch.randn(1, 3, *ODD), [dict(img_shape=ODD, ori_shape=ODD)])
    assert logits.shape == (1, 4, *ODD)
    strides = family.elastic(out_indices=(0, -1)).out_strides()
    if make is upernet:
        assert_maps(maps, [strides[-1] / scale for scale in (4, 2, 1, 0.5)], ODD, strides[-1])
    else:
        assert model.decode_head.feature_strides == [*strides, strides[-1] * 2, strides[-1] * 4]
        assert_maps(maps, model.decode_head.feature_strides, ODD, strides[-1])


# wherever a model is built


@pytest.fixture
def later() -> Iterator[Registry]:
    """A project whose registry is made after vitnas_core was imported."""
    yield Registry('model', parent=MODELS, scope='later')
    del MODELS._children['later']


def test_every_registry_fills(later: Registry) -> None:
    cls, family = classifier(), FAMILIES['s3']
    for registry in (MODELS, DET_MODELS, SEG_MODELS, CLS_MODELS, OUR_MODELS, later):
        assert registry.build_func is build_model
        assert registry.build(cls).head.fc.in_features == 72
    inner = Registry('model', parent=later, scope='inner')
    assert inner.build(cls).head.fc.in_features == 72
    # Types without a scope are those of the registry that is asked.
    det, seg = retinanet(family), fpn_segmentor(family)
    del det['data_preprocessor'], seg['data_preprocessor']  # mmengine looks for those in the default scope
    assert DET_MODELS.build(det).bbox_head.prior_generator.strides[0] == (8, 8)
    assert SEG_MODELS.build(seg).decode_head.feature_strides == [4, 8, 16, 32]
    cls['type'], cls['neck']['type'] = 'ImageClassifier', 'GlobalAveragePooling'
    assert CLS_MODELS.build(cls).head.fc.in_features == 72


def test_registries_of_before_are_filled_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if vitnas_core were imported after a project, and the project's own project."""
    root = Registry('root', build_func=build_model_from_cfg, scope='root')
    child = Registry('child', parent=root, scope='child')
    grandchild = Registry('grandchild', parent=child, scope='grandchild')
    other = Registry('other', parent=root, scope='other', build_func=lambda cfg, registry: 'its own way')
    fill_auto_when_built(root)
    assert root.build_func is child.build_func is grandchild.build_func is build_model
    assert other.build(dict(type='x')) == 'its own way'


def test_configs_of_every_kind() -> None:
    plain = classifier()
    for cfg in (plain, ConfigDict(plain), Config(plain)):
        assert MODELS.build(cfg).head.fc.in_features == 72
    scoped = dict(plain, backbone=dict(plain['backbone'], type='AutoFormer', _scope_='vitnas'))
    assert MODELS.build(scoped).head.fc.in_features == 72


def test_configs_with_imports(tmp_path: Path) -> None:
    """mmengine's new kind of config holds classes; written again, it holds their paths."""
    (tmp_path / 'new.py').write_text(
        'from mmpretrain.models import GlobalAveragePooling, ImageClassifier, LinearClsHead\n'
        'from vitnas_core.backbones import AutoFormer\n'
        'model = dict(type=ImageClassifier, backbone=dict(type=AutoFormer, arch="autoformer-tiny"),\n'
        '             neck=dict(type=GlobalAveragePooling), head=dict(type=LinearClsHead, num_classes=3))\n'
        'model["head"].update(in_channels="auto")\n'
    )
    cfg = Config.fromfile(tmp_path / 'new.py', lazy_import=True)
    with torch.device('meta'):
        assert MODELS.build(cfg.model).head.fc.in_features == 192
        cfg.dump(tmp_path / 'again.py')
        again = Config.fromfile(tmp_path / 'again.py')
        assert isinstance(again.model.backbone.type, str) and again.model.head.in_channels == 'auto'
        assert MODELS.build(again.model).head.fc.in_features == 192
    assert model_config(again).head.in_channels == 192


def test_the_scope_of_a_config_tells_which_neck_is_meant() -> None:
    """FPN of mmseg and mmdet are two; ``model_config`` knows by the config's scope alone."""
    cfg = dict(
        type='EncoderDecoder',
        backbone=backbone_cfg(out_indices=(-1,) * 4),
        neck=dict(type='Feature2Pyramid', embed_dim=72, norm_cfg=BN),
        decode_head=dict(
            type='FPNHead', in_channels='auto', feature_strides='auto', in_index=[0, 1, 2, 3], channels=8,
            num_classes=3, norm_cfg=BN,
        ),
    )  # fmt: skip
    filled = model_config(Config(dict(model=cfg, default_scope='mmseg')))
    assert filled.decode_head.feature_strides == [2, 4, 8, 16]
    fixed = fixed_config(filled, FAMILIES['autoformer'].space.smallest())
    assert fixed.decode_head.in_channels == [48] * 4


class Wrapper(nn.Module):
    """A model of another project, which keeps what it is given."""

    def __init__(self, **parts: Any) -> None:
        super().__init__()
        self.__dict__['parts'] = parts


def test_models_of_others_are_built_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ('build_backbone', 'fill_auto'):
        monkeypatch.delattr(auto, name)
    mark, layer = object(), nn.Linear(1, 1)
    for backbone in ('resnet50', layer, None, 3, [dict(type='x')], dict(type='mmpretrain.ResNet'), dict(depth=18)):
        parts = dict(backbone=backbone, head=dict(mark=mark, strides='other'), strides=[4, 8])
        built = MODELS.build(dict(type=Wrapper, **parts)).parts
        assert built == parts and built['head']['mark'] is mark and built['backbone'] is backbone
    assert isinstance(MODELS.build([dict(type=Wrapper), dict(type=Wrapper, x=1)]), nn.Sequential)
    with pytest.raises(TypeError, match='cfg should be a dict'):
        MODELS.build('resnet50')


def test_a_leaf_without_a_backbone_of_ours() -> None:
    anchors = dict(type='mmdet.AnchorGenerator', scales=[8], ratios=[1.0], strides='auto')
    rpn = dict(type='mmdet.RPNHead', in_channels=8, feat_channels=8, anchor_generator=anchors)
    extractor = dict(
        type='mmdet.SingleRoIExtractor', roi_layer=dict(type='RoIAlign', output_size=7), out_channels=8,
        featmap_strides='auto',
    )  # fmt: skip
    head = dict(type='mmseg.FPNHead', in_channels=[8], feature_strides='auto', in_index=[0], channels=8, num_classes=3)
    linear = dict(type='mmpretrain.LinearNeck', in_channels='auto', out_channels=8)
    for leaf, message in (
        (rpn, "strides of mmdet.AnchorGenerator is 'auto'"),
        (extractor, "featmap_strides of mmdet.SingleRoIExtractor is 'auto'"),
        (head, "feature_strides of mmseg.FPNHead is 'auto'"),
        (linear, "in_channels of mmpretrain.LinearNeck is 'auto'"),
        ([dict(type='mmpretrain.GlobalAveragePooling'), linear], "in_channels of mmpretrain.LinearNeck is 'auto'"),
    ):
        for cfg in (leaf, dict(type=Wrapper, backbone=dict(type='mmpretrain.ResNet', depth=18), part=leaf)):
            with pytest.raises(VitnasError, match=f'{message}, {NEEDS}.*; give the number instead'):
                MODELS.build(cfg)


def test_the_sentence_of_a_whole_detector_of_others() -> None:
    cfg = stock(mmdet, 'retinanet_r50_fpn')
    cfg.bbox_head.anchor_generator.strides = 'auto'
    with pytest.raises(VitnasError, match=f"strides of AnchorGenerator is 'auto', {NEEDS}"):
        DET_MODELS.build(cfg)


def test_a_model_inside_another_follows_its_own_backbone() -> None:
    inner = dict(type=Wrapper, backbone=backbone_cfg(FAMILIES['s3']), head=dict(in_channels='auto', strides='auto'))
    outer = dict(
        type=Wrapper, backbone=backbone_cfg(), head=dict(in_channels='auto', strides='auto'), teacher=dict(model=inner)
    )
    filled = fill_auto(outer)
    assert filled['head'] == dict(in_channels=72, strides=[8])
    assert filled['teacher']['model']['head'] == dict(in_channels=48, strides=[8])
    # One whose detector is built by itself, as mmdet's semi-supervised ones do.
    wrapped = MODELS.build(dict(type=Wrapper, detector=retinanet(FAMILIES['s3'])))
    assert DET_MODELS.build(dict(wrapped.parts['detector'], data_preprocessor=None)).bbox_head.prior_generator.strides[
        0
    ] == (8, 8)
    foreign = dict(outer, backbone=dict(type='mmpretrain.ResNet', depth=18), head=dict(in_channels=512))
    assert MODELS.build(foreign).parts['teacher']['model']['head']['strides'] == 'auto'  # until it is built


# through mmdet's and mmseg's own tools

CONFIG = """
default_scope = '{scope}'
custom_imports = dict(imports=['vitnas_core'])
model = {model}
train_dataloader = dict(
    batch_size=2, num_workers=0, sampler=dict(type='DefaultSampler', shuffle=False), dataset={dataset})
optim_wrapper = dict(optimizer=dict(type='AdamW', lr=1e-3, weight_decay=0.05), paramwise_cfg=dict(layer_decay=0.9),
                     constructor='vitnas.LayerDecayOptimWrapperConstructor')
train_cfg = dict(type='IterBasedTrainLoop', max_iters=1, val_interval=10)
default_hooks = dict(checkpoint=dict(type='CheckpointHook', by_epoch=False, interval=1))
"""


def det_config(family: Family, data: Path) -> str:
    pipeline = [
        dict(type='LoadImageFromFile'),
        dict(type='LoadAnnotations', with_bbox=True, with_mask=True),
        dict(type='PackDetInputs'),
    ]
    dataset = dict(
        type='CocoDataset',
        data_root=str(data),
        ann_file='annotations/instances_train.json',
        data_prefix=dict(img='train/'),
        metainfo=dict(classes=tuple('0123456789')),
        pipeline=pipeline,
    )
    model = mask_rcnn(family, fpn(), (0, -1))
    for part in ('bbox', 'mask'):
        model.roi_head[f'{part}_head'].num_classes = 10
    return CONFIG.format(scope='mmdet', model=model.to_dict(), dataset=dataset)


def seg_config(family: Family, data: Path) -> str:
    dataset = dict(
        type='BaseSegDataset',
        data_root=str(data),
        data_prefix=dict(img_path='train', seg_map_path='labels/train'),
        img_suffix='.png',
        metainfo=dict(classes=tuple('abcdefghijk'), palette=[[i] * 3 for i in range(11)]),
        reduce_zero_label=True,
        pipeline=[
            dict(type='LoadImageFromFile'),
            dict(type='LoadAnnotations', reduce_zero_label=True),
            dict(type='PackSegInputs'),
        ],
    )
    model = fpn_segmentor(family)
    model.decode_head.num_classes = 11
    model.data_preprocessor.size = (60, 84)
    return CONFIG.format(scope='mmseg', model=model.to_dict(), dataset=dataset)


@pytest.fixture(scope='module')
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp('auto') / 'scenes'
    write_scenes(folder, 2, 1, size=(60, 84))
    return folder


def test_mmdet_trains_with_its_own_tool(scenes: Path, tmp_path: Path) -> None:
    (tmp_path / 'config.py').write_text(det_config(FAMILIES['s3'], scenes))
    script = Path(mmdet.__path__[0]) / '.mim/tools/train.py'
    command = [sys.executable, str(script), str(tmp_path / 'config.py'), '--work-dir', str(tmp_path / 'work')]
    paths = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get('PYTHONPATH', '')])
    run = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, env={**os.environ, 'PYTHONPATH': paths}, timeout=300
    )
    assert run.returncode == 0, run.stderr[-2000:]
    assert (tmp_path / 'work/iter_1.pth').is_file()


def test_mmseg_trains_with_its_own_tool(scenes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / 'config.py').write_text(seg_config(FAMILIES['s3'], scenes))
    script = str(Path(mmseg.__path__[0]) / '.mim/tools/train.py')
    monkeypatch.setattr(sys, 'argv', [script, str(tmp_path / 'config.py'), '--work-dir', str(tmp_path / 'work')])
    runpy.run_path(script, run_name='__main__')
    assert (tmp_path / 'work/iter_1.pth').is_file()


def test_init_detector(scenes: Path, tmp_path: Path) -> None:
    from mmdet.apis import inference_detector, init_detector

    text = det_config(FAMILIES['autoformer'], scenes) + (
        "test_dataloader = dict(dataset=dict(pipeline=[dict(type='LoadImageFromFile'), "
        "dict(type='Resize', scale_factor=1.0), "
        "dict(type='PackDetInputs', meta_keys=('ori_shape', 'img_shape', 'scale_factor'))]))\n"
    )
    (tmp_path / 'config.py').write_text(text)
    model = init_detector(str(tmp_path / 'config.py'), device='cpu', palette='random')
    assert model.roi_head.bbox_roi_extractor.featmap_strides == [8, 8]
    assert model.cfg.model.rpn_head.anchor_generator.strides == 'auto'
    result = inference_detector(model, np.zeros((61, 83, 3), np.uint8))
    assert result.pred_instances.bboxes.shape[-1] == 4
