"""A micro NASViT supernet on 5,000 images of Fashion-MNIST; minutes on one core."""

_base_ = [
    '../../../../configs/supernets/nasvit.py',
    '../../../../configs/_base_/datasets/fashion_mnist.py',
    '../../../../configs/spaces/nasvit_micro.py',
]

# The first 6,000 training images, 100 of each class held out, and one weak operation of RandAugment (Tab. 5), which
# needs three channels.
train_pipeline = [
    *_base_.train_pipeline[:-1],
    dict(type='NumpyToPIL'),
    dict(type='torchvision/Grayscale', num_output_channels=3),
    dict(type='PILToNumpy'),
    dict(
        type='RandAugment',
        policies='timm_increasing',
        num_policies=1,
        total_level=10,
        magnitude_level=1,
        magnitude_std=0.5,
    ),
    dict(type='PackInputs'),
]
train_dataloader = dict(dataset=dict(per_class=100, dataset=dict(indices=6000, pipeline=train_pipeline)))
val_dataloader = dict(dataset=dict(per_class=100, dataset=dict(indices=6000)))

model = dict(backbone=dict(space=dict(_delete_=True, **_base_.space)), head=dict(num_classes=10, topk=(1,)))
# As on the digits: a short training distills with KL, and projects after its first quarter.
rule = dict(distill=dict(type='vitnas.KLDivergence'), conflict=dict(start=0.25))
train_cfg = dict(max_epochs=6, val_interval=6, rule=rule)
optim_wrapper = dict(optimizer=dict(type='AdamW', lr=2e-3, weight_decay=0.0), clip_grad=dict(max_norm=5.0))
param_scheduler = [
    dict(type='LinearLR', start_factor=0.01, by_epoch=True, end=1, convert_to_iter_based=True),
    dict(type='CosineAnnealingLR', eta_min=1e-5, by_epoch=True, begin=1, end=6, convert_to_iter_based=True),
]
default_hooks = dict(checkpoint=dict(interval=3))
custom_hooks = [
    dict(type='vitnas.RecalibrateHook', dataloader=_base_.val_dataloader, num_batches=2),
    dict(type='vitnas.ConflictMeterHook', interval=10),
]
