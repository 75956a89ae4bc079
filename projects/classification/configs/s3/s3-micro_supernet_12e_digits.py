"""A micro S3 supernet on the embedded digits: the initial space; a minute on one core."""

_base_ = [
    '../../../../configs/supernets/s3.py',
    '../../../../configs/_base_/datasets/digits.py',
    '../../../../configs/_base_/schedules/s3_micro.py',
    '../../../../configs/spaces/s3_micro.py',
]

model = dict(
    backbone=dict(
        space=dict(_delete_=True, family='s3', name='s3-micro', stages=[_base_.stage] * 3),
        img_size=32,
        patch_size=4,
        drop_path_rate=0.0,
    ),
    head=dict(num_classes=10),
    train_cfg=None,
)
train_cfg = dict(max_epochs=12, val_interval=12)
param_scheduler = [
    dict(type='LinearLR', start_factor=0.01, by_epoch=True, end=2, convert_to_iter_based=True),
    dict(type='CosineAnnealingLR', eta_min=1e-5, by_epoch=True, begin=2, end=12, convert_to_iter_based=True),
]
default_hooks = dict(checkpoint=dict(interval=4))
custom_hooks = [dict(type='vitnas.ProgressHook')]
