"""A micro ViT-ResNAS supernet on 4,000 images of Fashion-MNIST, eight architectures per step; minutes on one core."""

_base_ = [
    '../../../../configs/supernets/vit_resnas.py',
    '../../../../configs/_base_/datasets/fashion_mnist.py',
    '../../../../configs/spaces/vit_resnas_micro.py',
    '../../../../configs/_base_/schedules/micro.py',
]

# The first 5,000 training images, 100 of each class held out; twice as large, for 4 × 4 patches of 14.
train_pipeline = [dict(type='Resize', scale=56), *_base_.train_pipeline]
test_pipeline = [dict(type='Resize', scale=56), *_base_.test_pipeline]
train_dataloader = dict(batch_size=64, dataset=dict(per_class=100, dataset=dict(indices=5000, pipeline=train_pipeline)))
val_dataloader = dict(dataset=dict(per_class=100, dataset=dict(indices=5000, pipeline=test_pipeline)))
test_dataloader = dict(dataset=dict(pipeline=test_pipeline))
data_preprocessor = dict(type='vitnas.TokenLabelPreprocessor', token_mix=dict(grid=2))

model = dict(
    backbone=dict(
        space=dict(_delete_=True, **_base_.space),
        img_size=56,
        drop_path_rate=0.0,
    ),
    head=dict(num_classes=10, topk=(1,)),
)

train_cfg = dict(max_epochs=8, val_interval=8, sampler=dict(sampler=dict(num_archs=8)))
optim_wrapper = dict(optimizer=dict(lr=3e-3))
param_scheduler = [
    dict(type='LinearLR', start_factor=0.01, by_epoch=True, end=1, convert_to_iter_based=True),
    dict(type='CosineAnnealingLR', eta_min=1e-5, by_epoch=True, begin=1, end=8, convert_to_iter_based=True),
]
default_hooks = dict(checkpoint=dict(interval=4))
custom_hooks = []
