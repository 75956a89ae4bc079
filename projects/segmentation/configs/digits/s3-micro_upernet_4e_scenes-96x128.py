"""UperNet, made small, around a micro S3 searched on single digits; see the recipe for data and weights."""

_base_ = [
    'mmseg::_base_/models/upernet_swin.py',
    '../../../../configs/recipes/scenes_segmentation.py',
]

model = dict(
    data_preprocessor=dict(mean=_base_.data_mean, std=_base_.data_std, size=_base_.crop_size),
    backbone=dict(_delete_=True, **_base_.backbone),
    decode_head=dict(
        in_channels='auto', in_index=[0, 1, 2], channels=48, num_classes=11, init_cfg=_base_.classifier_init
    ),
    auxiliary_head=dict(in_channels='auto', in_index=2, channels=48, num_classes=11, init_cfg=_base_.classifier_init),
)
optim_wrapper = dict(optimizer=dict(lr=2e-3))
