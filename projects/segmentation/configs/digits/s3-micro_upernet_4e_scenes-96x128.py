"""UperNet, made small, around a micro S3 that was searched on single digits.

The scenes: ``python tools/dataset_converters/make_scenes.py``. Random weights instead of the searched backbone's:
``--cfg-options model.backbone.init_cfg=None``.
"""

_base_ = [
    'mmseg::_base_/models/upernet_swin.py',
    '../../../../configs/backbones/s3_micro_fpn.py',
    '../../../../configs/_base_/datasets/scenes_segmentation.py',
    '../../../../configs/_base_/schedules/scenes_4e.py',
    '../../../../configs/_base_/default_runtime.py',
]
default_scope = 'mmseg'
visualizer = dict(type='SegLocalVisualizer')

model = dict(
    data_preprocessor=dict(mean=_base_.data_mean, std=_base_.data_std, size=_base_.crop_size),
    backbone=dict(_delete_=True, **_base_.backbone),
    decode_head=dict(
        in_channels='auto', in_index=[0, 1, 2], channels=48, num_classes=11, init_cfg=_base_.classifier_init
    ),
    auxiliary_head=dict(in_channels='auto', in_index=2, channels=48, num_classes=11, init_cfg=_base_.classifier_init),
)
optim_wrapper = dict(optimizer=dict(lr=2e-3))
