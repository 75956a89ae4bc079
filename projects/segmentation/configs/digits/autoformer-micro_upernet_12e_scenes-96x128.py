"""UperNet, made small, around what ``bash tools/quickstart.sh`` searched; no result yet (see the README).

The scenes: ``python tools/dataset_converters/make_scenes.py``. Random weights instead of the searched backbone's:
``--cfg-options model.backbone.init_cfg=None``.
"""

_base_ = [
    'mmseg::_base_/models/upernet_swin.py',
    '../../../../configs/backbones/autoformer_micro_pyramid.py',
    '../../../../configs/_base_/datasets/scenes_segmentation.py',
    '../../../../configs/_base_/schedules/scenes_12e.py',
    '../../../../configs/_base_/default_runtime.py',
]
default_scope = 'mmseg'
visualizer = dict(type='SegLocalVisualizer')

model = dict(
    data_preprocessor=dict(mean=_base_.data_mean, std=_base_.data_std, size=_base_.crop_size),
    backbone=dict(_delete_=True, **_base_.backbone),
    neck=_base_.neck,
    decode_head=dict(in_channels='auto', in_index=[0, 1, 2], channels=64, num_classes=11),
    auxiliary_head=dict(in_channels='auto', in_index=1, channels=32, num_classes=11),
)
