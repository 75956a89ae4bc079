"""Mask R-CNN, made small, around a micro S3 that was searched on single digits.

The scenes: ``python tools/dataset_converters/make_scenes.py``. Random weights instead of the searched backbone's:
``--cfg-options model.backbone.init_cfg=None``.
"""

_base_ = [
    'mmdet::_base_/models/mask-rcnn_r50_fpn.py',
    '../../../../configs/backbones/s3_micro_fpn.py',
    '../../../../configs/_base_/datasets/scenes_detection.py',
    '../../../../configs/_base_/schedules/scenes_4e.py',
    '../../../../configs/_base_/default_runtime.py',
]
default_scope = 'mmdet'
visualizer = dict(type='DetLocalVisualizer')

extractor = dict(out_channels=48, featmap_strides='auto')
model = dict(
    data_preprocessor=dict(mean=_base_.data_mean, std=_base_.data_std, pad_size_divisor=16),
    backbone=dict(_delete_=True, **_base_.backbone),
    neck=dict(_delete_=True, **_base_.neck),
    rpn_head=dict(in_channels='auto', feat_channels=48, anchor_generator=dict(scales=[4], strides='auto')),
    roi_head=dict(
        bbox_roi_extractor=extractor,
        bbox_head=dict(in_channels=48, fc_out_channels=128, num_classes=10),
        mask_roi_extractor=extractor,
        mask_head=dict(num_convs=1, in_channels=48, conv_out_channels=32, num_classes=10),
    ),
    train_cfg=dict(
        rpn=dict(sampler=dict(num=64)),
        rpn_proposal=dict(nms_pre=200, max_per_img=100),
        rcnn=dict(sampler=dict(num=32)),
    ),
    test_cfg=dict(rpn=dict(nms_pre=200, max_per_img=50), rcnn=dict(max_per_img=20)),
)
