"""A micro S3 supernet for the scenes of digits: trained on single digits, drawn as the scenes draw them."""

_base_ = [
    '../../../../configs/supernets/s3.py',
    '../../../../configs/_base_/datasets/drawn_digits.py',
    '../../../../configs/spaces/s3_micro_scenes.py',
    '../../../../configs/_base_/schedules/s3_micro.py',
]

model = dict(
    backbone=dict(space=dict(_delete_=True, **_base_.space), img_size=56, patch_size=4, drop_path_rate=0.0),
    head=dict(num_classes=10),
    train_cfg=None,
)
train_cfg = dict(max_epochs=120, val_interval=20, sampler=dict(num_random=1))
param_scheduler = [
    dict(type='LinearLR', start_factor=0.01, by_epoch=True, end=5, convert_to_iter_based=True),
    dict(type='CosineAnnealingLR', eta_min=1e-5, by_epoch=True, begin=5, end=120, convert_to_iter_based=True),
]
default_hooks = dict(checkpoint=dict(interval=20))
custom_hooks = [dict(type='vitnas.ProgressHook'), dict(type='vitnas.SupernetReportHook', interval=20, num_random=2)]
