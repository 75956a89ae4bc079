"""CIFAR-100 as in FocusFormer: 224 × 224, DeiT's augmentation, 100 of the 500 training images per class held out.

Training uses the other 400, ``val`` is the held-out part, ``test`` the official test set. mmpretrain downloads the data
to ``data/cifar100`` if it is missing.
"""

# ImageNet's mean and deviation, as in DeiT. The images are stored as RGB.
data_preprocessor = dict(num_classes=100, mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375], to_rgb=False)

train_pipeline = [
    dict(type='RandomResizedCrop', scale=224, backend='pillow', interpolation='bicubic'),
    dict(type='RandomFlip', prob=0.5, direction='horizontal'),
    dict(
        type='RandAugment',
        policies='timm_increasing',
        num_policies=2,
        total_level=10,
        magnitude_level=9,
        magnitude_std=0.5,
        hparams=dict(pad_val=[124, 116, 104], interpolation='bicubic'),
    ),
    dict(
        type='RandomErasing',
        erase_prob=0.25,
        mode='rand',
        min_area_ratio=0.02,
        max_area_ratio=1 / 3,
        fill_color=data_preprocessor['mean'],
        fill_std=data_preprocessor['std'],
    ),
    dict(type='PackInputs'),
]
test_pipeline = [
    dict(type='ResizeEdge', scale=256, edge='short', backend='pillow', interpolation='bicubic'),
    dict(type='CenterCrop', crop_size=224),
    dict(type='PackInputs'),
]

data_root = 'data/cifar100'
per_class = 100
train_dataloader = dict(
    batch_size=128,
    num_workers=8,
    persistent_workers=True,
    dataset=dict(
        type='vitnas.HoldOut',
        part='train',
        per_class=per_class,
        dataset=dict(type='CIFAR100', data_root=data_root, split='train', pipeline=train_pipeline),
    ),
    sampler=dict(type='DefaultSampler', shuffle=True),
    drop_last=True,
)
val_dataloader = dict(
    batch_size=256,
    num_workers=8,
    persistent_workers=True,
    dataset=dict(
        type='vitnas.HoldOut',
        part='holdout',
        per_class=per_class,
        dataset=dict(type='CIFAR100', data_root=data_root, split='train', pipeline=test_pipeline),
    ),
    sampler=dict(type='DefaultSampler', shuffle=False),
)
val_evaluator = dict(type='Accuracy', topk=(1, 5))
test_dataloader = dict(
    batch_size=256,
    num_workers=8,
    persistent_workers=True,
    dataset=dict(type='CIFAR100', data_root=data_root, split='test', pipeline=test_pipeline),
    sampler=dict(type='DefaultSampler', shuffle=False),
)
test_evaluator = val_evaluator
