"""A micro ViT-ResNAS supernet on the embedded digits: eight architectures per step; about two minutes on two cores."""

_base_ = [
    '../../../../configs/supernets/vit_resnas.py',
    '../../../../configs/_base_/datasets/digits.py',
    '../../../../configs/spaces/vit_resnas_micro.py',
    '../../../../configs/_base_/schedules/micro.py',
]

# 4 × 4 patches of 14, then 2 × 2 tokens, which have their own labels.
size = 56
train_pipeline = [
    dict(type='Resize', scale=size, interpolation='bicubic'),
    dict(type='RandomCrop', crop_size=size, padding=4),
    dict(type='PackInputs'),
]
test_pipeline = [dict(type='Resize', scale=size, interpolation='bicubic'), dict(type='PackInputs')]
train_dataloader = dict(dataset=dict(dataset=dict(pipeline=train_pipeline)))
val_dataloader = dict(dataset=dict(dataset=dict(pipeline=test_pipeline)))
test_dataloader = dict(dataset=dict(pipeline=test_pipeline))
data_preprocessor = dict(type='vitnas.TokenLabelPreprocessor', token_mix=dict(grid=2))

model = dict(
    backbone=dict(space=dict(_delete_=True, **_base_.space), img_size=size, drop_path_rate=0.0),
    head=dict(num_classes=10, topk=(1,)),
)
train_cfg = dict(max_epochs=30, val_interval=10, sampler=dict(sampler=dict(num_archs=8)))
optim_wrapper = dict(optimizer=dict(lr=3e-3))
param_scheduler = [
    dict(type='LinearLR', start_factor=0.01, by_epoch=True, end=3, convert_to_iter_based=True),
    dict(type='CosineAnnealingLR', eta_min=1e-5, by_epoch=True, begin=3, end=30, convert_to_iter_based=True),
]
default_hooks = dict(checkpoint=dict(interval=10), logger=dict(interval=10))
custom_hooks = [dict(type='vitnas.ProgressHook'), dict(type='vitnas.SupernetReportHook', interval=10, num_random=3)]
