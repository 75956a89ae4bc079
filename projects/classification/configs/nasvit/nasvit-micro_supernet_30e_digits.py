"""A micro NASViT supernet on the embedded digits; under four minutes on two cores."""

_base_ = [
    '../../../../configs/supernets/nasvit.py',
    '../../../../configs/_base_/datasets/digits.py',
    '../../../../configs/spaces/nasvit_micro.py',
]

model = dict(backbone=dict(space=dict(_delete_=True, **_base_.space)), head=dict(num_classes=10, topk=(1,)))
# At first, subnets imitate an untrained network, and projection lets them slow it down. A short training cannot afford
# this, so projection starts after a quarter of it, as in the published code, and the distillation uses KL. With the
# α-divergence and projection from the first step, accuracy on the held-out digits ended at 76 %, not at 99 %. We did
# not investigate which of the two is the cause.
rule = dict(distill=dict(type='vitnas.KLDivergence'), conflict=dict(start=0.25))
train_cfg = dict(max_epochs=30, val_interval=10, rule=rule)
optim_wrapper = dict(optimizer=dict(type='AdamW', lr=3e-3, weight_decay=0.0), clip_grad=dict(max_norm=5.0))
param_scheduler = [
    dict(type='LinearLR', start_factor=0.01, by_epoch=True, end=3, convert_to_iter_based=True),
    dict(type='CosineAnnealingLR', eta_min=1e-5, by_epoch=True, begin=3, end=30, convert_to_iter_based=True),
]
default_hooks = dict(checkpoint=dict(interval=10), logger=dict(interval=10))
custom_hooks = [
    dict(type='vitnas.ProgressHook'),
    dict(type='vitnas.SupernetReportHook', interval=10, num_random=3),
    dict(type='vitnas.RecalibrateHook', dataloader=_base_.val_dataloader, num_batches=2),
    dict(type='vitnas.ConflictMeterHook', interval=17),
]
