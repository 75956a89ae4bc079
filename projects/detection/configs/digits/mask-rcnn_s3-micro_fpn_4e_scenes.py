"""Mask R-CNN, made small, around a micro S3 searched on single digits; see the recipe for data and weights."""

_base_ = [
    'mmdet::_base_/models/mask-rcnn_r50_fpn.py',
    '../../../../configs/recipes/scenes_detection.py',
]

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
