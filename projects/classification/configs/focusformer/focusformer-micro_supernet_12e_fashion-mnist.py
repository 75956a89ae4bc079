"""A micro FocusFormer supernet on 4,000 images of Fashion-MNIST, with its sampler: about two minutes on one core."""

_base_ = [
    '../../../../configs/supernets/focusformer.py',
    '../../../../configs/_base_/datasets/fashion_mnist.py',
    '../../../../configs/_base_/schedules/micro.py',
]

# The first 4,500 training images, 50 of each class held out.
subset = dict(per_class=50, dataset=dict(indices=4500))
train_dataloader = dict(batch_size=32, dataset=subset)
val_dataloader = dict(dataset=subset)

space = dict(
    _delete_=True,
    family='autoformer',
    name='focusformer-micro',
    stages=[dict(embed_dim=[40, 52, 64], depth=[2, 3, 4], block=dict(num_heads=[1, 2, 3], mlp_ratio=[1, 2, 3]))],
)
model = dict(
    backbone=dict(space=space, img_size=28, patch_size=7, reach=4, drop_path_rate=0.0),
    head=dict(num_classes=10, topk=(1,)),
    train_cfg=None,
)

train_cfg = dict(max_epochs=12, val_interval=12, sampler=dict(step=5e5))
optim_wrapper = dict(optimizer=dict(lr=3e-3), paramwise_cfg=dict(custom_keys=dict(peg=dict(decay_mult=0.0))))
param_scheduler = [
    dict(type='LinearLR', start_factor=0.01, by_epoch=True, end=1, convert_to_iter_based=True),
    dict(type='CosineAnnealingLR', eta_min=1e-5, by_epoch=True, begin=1, end=12, convert_to_iter_based=True),
]
default_hooks = dict(checkpoint=dict(interval=4))
custom_hooks = [
    # As for the digits: six times 60 iterations; the paper has 1,600.
    dict(
        type='vitnas.SamplerTrainHook',
        interval=2,
        iterations=60,
        beta=1.0,
        num_archs=8,
        baseline=0.9,
        entropy=0.01,
        optimizer=dict(type='AdamW', lr=5e-3, weight_decay=0.05),
    ),
    dict(type='vitnas.ProgressiveLearningHook', start=21, end=28, step=7),
]
