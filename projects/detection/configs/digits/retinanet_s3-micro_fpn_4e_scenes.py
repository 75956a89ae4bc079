"""RetinaNet, made small, around a micro S3 that was searched on single digits.

The scenes: ``python tools/dataset_converters/make_scenes.py``. Random weights instead of the searched backbone's:
``--cfg-options model.backbone.init_cfg=None``.
"""

_base_ = [
    'mmdet::_base_/models/retinanet_r50_fpn.py',
    '../../../../configs/backbones/s3_micro_fpn.py',
    '../../../../configs/_base_/datasets/scenes_detection.py',
    '../../../../configs/_base_/schedules/scenes_4e.py',
    '../../../../configs/_base_/default_runtime.py',
]
default_scope = 'mmdet'
visualizer = dict(type='DetLocalVisualizer')

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
