"""RetinaNet, made small, around what ``bash tools/quickstart.sh`` searched; no result yet (see the README).

The scenes: ``python tools/dataset_converters/make_scenes.py``. Random weights instead of the searched backbone's:
``--cfg-options model.backbone.init_cfg=None``.
"""

_base_ = [
    'mmdet::_base_/models/retinanet_r50_fpn.py',
    '../../../../configs/backbones/autoformer_micro_pyramid.py',
    '../../../../configs/_base_/datasets/scenes_detection.py',
    '../../../../configs/_base_/schedules/scenes_12e.py',
    '../../../../configs/_base_/default_runtime.py',
]
default_scope = 'mmdet'
visualizer = dict(type='DetLocalVisualizer')

model = dict(
    data_preprocessor=dict(mean=_base_.data_mean, std=_base_.data_std, pad_size_divisor=16),
    backbone=dict(_delete_=True, **_base_.backbone),
    neck=dict(_delete_=True, **_base_.neck),
    bbox_head=dict(
        in_channels='auto', feat_channels=32, stacked_convs=2, num_classes=10, anchor_generator=dict(strides='auto')
    ),
    test_cfg=dict(nms_pre=200, max_per_img=20),
)
val_evaluator = dict(metric='bbox')
test_evaluator = val_evaluator
