"""A micro S3 supernet on 4,000 images of Fashion-MNIST: the initial space."""

_base_ = [
    '../../../../configs/supernets/s3.py',
    '../../../../configs/_base_/datasets/fashion_mnist.py',
    '../../../../configs/_base_/schedules/s3_micro.py',
    '../../../../configs/spaces/s3_micro.py',
]

# The first 5,000 training images, 100 of each class held out. The held-out images compare architectures.
subset = dict(per_class=100, dataset=dict(indices=5000))
train_dataloader = dict(batch_size=64, dataset=subset)
val_dataloader = dict(dataset=subset)

model = dict(
    backbone=dict(
        space=dict(_delete_=True, family='s3', name='s3-micro', stages=[_base_.stage] * 3),
        img_size=28,
        drop_path_rate=0.0,
    ),
    head=dict(num_classes=10, loss=dict(_delete_=True, type='LabelSmoothLoss', label_smooth_val=0.1)),
    train_cfg=None,
)
train_cfg = dict(max_epochs=8, val_interval=1000)  # the last epoch only
optim_wrapper = dict(optimizer=dict(lr=3e-3))
param_scheduler = [
    dict(type='LinearLR', start_factor=0.01, by_epoch=True, end=1, convert_to_iter_based=True),
    dict(type='CosineAnnealingLR', eta_min=1e-5, by_epoch=True, begin=1, end=8, convert_to_iter_based=True),
]
default_hooks = dict(checkpoint=dict(interval=4))
custom_hooks = []
