"""Train a micro superformer of ViTAS-Twins on the embedded digits; under a minute on two cores."""

_base_ = [
    '../../../../configs/supernets/vitas.py',
    '../../../../configs/_base_/datasets/digits.py',
    '../../../../configs/spaces/vitas_twins_micro.py',
]

model = dict(
    backbone=dict(space=dict(_delete_=True, **_base_.space), window_size=4, sr_ratios=(2, 1)),
    head=dict(num_classes=10, topk=(1,)),
)
train_cfg = dict(max_epochs=30, val_interval=30)
optim_wrapper = dict(optimizer=dict(type='AdamW', lr=2e-3, weight_decay=0.0), clip_grad=dict(max_norm=5.0))
param_scheduler = [
    dict(type='LinearLR', start_factor=0.01, by_epoch=True, end=3, convert_to_iter_based=True),
    dict(type='CosineAnnealingLR', eta_min=0.0, by_epoch=True, begin=3, end=30, convert_to_iter_based=True),
]
default_hooks = dict(checkpoint=dict(interval=10))
custom_hooks = [dict(type='vitnas.SupernetReportHook', interval=10, num_random=3)]
