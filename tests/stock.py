"""Stock models of mmdet and mmseg around any family: narrow, with ``'auto'`` for all channels and strides."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mmdet
import mmseg
from mmengine.config import Config, ConfigDict

from .families import FAMILIES, Family


def backbone_cfg(family: Family = FAMILIES['autoformer'], **settings: Any) -> dict[str, Any]:
    kind = f'vitnas.{family.cls.__name__}'
    return dict(type=kind, space=family.space.to_dict(), **{**family.settings, **settings})


def fpn(kind: str = 'mmdet.FPN', num_outs: int = 5, **more: Any) -> dict[str, Any]:
    return dict(type=kind, in_channels='auto', out_channels=8, num_outs=num_outs, **more)


def pyramid(**more: Any) -> dict[str, Any]:
    return dict(type='vitnas.SimpleFeaturePyramid', in_channels='auto', **more)


BN = dict(type='BN')


def stock(package: Any, name: str) -> ConfigDict:
    model = Config.fromfile(Path(package.__path__[0]) / '.mim/configs/_base_/models' / f'{name}.py').model
    model.pop('pretrained', None)
    return model


def mask_rcnn(family: Family, neck: dict[str, Any], out_indices: Sequence[int]) -> ConfigDict:
    cfg = stock(mmdet, 'mask-rcnn_r50_fpn')
    cfg.backbone, cfg.neck = backbone_cfg(family, out_indices=out_indices), neck
    cfg.rpn_head.update(in_channels='auto', feat_channels=8)
    cfg.rpn_head.anchor_generator.strides = 'auto'
    for part in ('bbox', 'mask'):
        cfg.roi_head[f'{part}_roi_extractor'].update(featmap_strides='auto', out_channels=8)
        cfg.roi_head[f'{part}_head'].update(in_channels='auto', num_classes=3)
    cfg.roi_head.bbox_head.fc_out_channels = cfg.roi_head.mask_head.conv_out_channels = 8
    cfg.roi_head.mask_head.num_convs = 1
    cfg.train_cfg.rcnn.sampler.num = cfg.train_cfg.rpn.sampler.num = 16
    cfg.train_cfg.rpn_proposal.update(nms_pre=50, max_per_img=20)
    cfg.data_preprocessor.pad_size_divisor = 1
    return cfg


def retinanet(family: Family, out_indices: Sequence[int] = (0, -1)) -> ConfigDict:
    cfg = stock(mmdet, 'retinanet_r50_fpn')
    cfg.backbone = backbone_cfg(family, out_indices=out_indices)
    cfg.neck.update(in_channels='auto', out_channels=8)
    cfg.bbox_head.update(in_channels='auto', num_classes=3, feat_channels=8, stacked_convs=1)
    cfg.bbox_head.anchor_generator.strides = 'auto'
    cfg.data_preprocessor.pad_size_divisor = 1
    return cfg


def upernet(family: Family) -> ConfigDict:
    cfg = stock(mmseg, 'upernet_r50')
    cfg.backbone, cfg.neck = backbone_cfg(family), pyramid(out_channels=8, num_outs=4)
    for head in (cfg.decode_head, cfg.auxiliary_head):
        head.update(in_channels='auto', channels=8, num_classes=4, norm_cfg=BN)
    return cfg


def fpn_segmentor(family: Family) -> ConfigDict:
    cfg = stock(mmseg, 'fpn_r50')
    cfg.backbone = backbone_cfg(family, out_indices=(0, -1))
    cfg.neck.update(in_channels='auto', out_channels=8)
    cfg.decode_head.update(in_channels='auto', feature_strides='auto', channels=8, num_classes=4, norm_cfg=BN)
    return cfg
