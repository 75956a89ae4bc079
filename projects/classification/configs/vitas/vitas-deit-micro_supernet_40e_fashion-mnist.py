"""A micro superformer of ViTAS-DeiT on 4,000 images of Fashion-MNIST; two minutes on one core."""

_base_ = [
    '../../../../configs/supernets/vitas.py',
    '../../../../configs/_base_/datasets/fashion_mnist.py',
    '../../../../configs/spaces/vitas_deit_micro.py',
]

# The first 5,000 training images, 100 of each class held out.
train_dataloader = dict(batch_size=32, dataset=dict(per_class=100, dataset=dict(indices=5000)))
val_dataloader = dict(dataset=dict(per_class=100, dataset=dict(indices=5000)))

model = dict(
    backbone=dict(
        _delete_=True,
        type='vitnas.ViTASDeiT',
        space=_base_.space,
        img_size=28,
        sharing='cyclic',
        out_type='cls_token',
    ),
    neck=None,
    head=dict(num_classes=10, topk=(1,)),
)

train_cfg = dict(max_epochs=40, val_interval=100)
optim_wrapper = dict(optimizer=dict(type='AdamW', lr=1e-3, weight_decay=0.0), clip_grad=dict(max_norm=5.0))
param_scheduler = [
    dict(type='LinearLR', start_factor=0.01, by_epoch=True, end=2, convert_to_iter_based=True),
    dict(type='CosineAnnealingLR', eta_min=0.0, by_epoch=True, begin=2, end=40, convert_to_iter_based=True),
]
default_hooks = dict(checkpoint=dict(interval=10))
custom_hooks = []
