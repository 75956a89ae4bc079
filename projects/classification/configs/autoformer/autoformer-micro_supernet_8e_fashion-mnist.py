"""A micro AutoFormer supernet on 4,000 images of Fashion-MNIST, trained in about a minute on one core."""

_base_ = [
    '../../../../configs/_base_/default_runtime.py',
    '../../../../configs/_base_/datasets/fashion_mnist.py',
    '../../../../configs/_base_/schedules/micro.py',
]

# The first 6,000 training images, 200 of each class held out.
subset = dict(per_class=200, dataset=dict(indices=6000))
train_dataloader = dict(batch_size=32, dataset=subset)
holdout_dataloader = dict(dataset=subset)
# A study reads the last validation. For a network trained alone, this must use the test images.
val_dataloader = dict(_delete_=True, **_base_.test_dataloader)

space = dict(
    family='autoformer',
    name='autoformer-micro',
    stages=[dict(embed_dim=[32, 48, 64], depth=[1, 2, 3, 4], block=dict(num_heads=[1, 2, 3], mlp_ratio=[1, 2, 3]))],
)
model = dict(
    type='ImageClassifier',
    backbone=dict(type='vitnas.AutoFormer', space=space, img_size=28, patch_size=7, reach=4, out_type='avg_featmap'),
    head=dict(
        type='LinearClsHead',
        num_classes=10,
        in_channels='auto',
        loss=dict(type='LabelSmoothLoss', label_smooth_val=0.1),
    ),
)

train_cfg = dict(
    type='vitnas.SupernetTrainLoop',
    max_epochs=8,
    val_interval=1000,  # the last epoch only
    sampler=dict(type='vitnas.UniformSampler'),
    rule=dict(type='vitnas.SinglePath'),
)
find_unused_parameters = True  # a step uses the parameters of its architecture only
optim_wrapper = dict(optimizer=dict(lr=3e-3))
param_scheduler = [
    dict(type='LinearLR', start_factor=0.01, by_epoch=True, end=1, convert_to_iter_based=True),
    dict(type='CosineAnnealingLR', eta_min=1e-5, by_epoch=True, begin=1, end=8, convert_to_iter_based=True),
]
default_hooks = dict(checkpoint=dict(interval=4))
