"""RetinaNet, made small, around a micro S3 searched on single digits; see the recipe for data and weights."""

_base_ = [
    'mmdet::_base_/models/retinanet_r50_fpn.py',
    '../../../../configs/recipes/scenes_detection.py',
]

model = dict(
    data_preprocessor=dict(mean=_base_.data_mean, std=_base_.data_std, pad_size_divisor=16),
    backbone=dict(_delete_=True, **_base_.backbone),
    neck=dict(_delete_=True, **_base_.neck),
    bbox_head=dict(
        in_channels='auto', feat_channels=48, stacked_convs=2, num_classes=10, anchor_generator=dict(strides='auto')
    ),
    test_cfg=dict(nms_pre=200, max_per_img=20),
)
val_evaluator = dict(metric='bbox')
test_evaluator = val_evaluator
