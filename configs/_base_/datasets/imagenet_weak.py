"""ImageNet-1k with NASViT's weak augmentation (its Tab. 5): RandAugment of one operation at magnitude 1.

Five training images per class are held out for the search.
"""

_base_ = './imagenet.py'

train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='RandomResizedCrop', scale=224, backend='pillow', interpolation='bicubic'),
    dict(type='RandomFlip', prob=0.5, direction='horizontal'),
    dict(
        type='RandAugment',
        policies='timm_increasing',
        num_policies=1,
        total_level=10,
        magnitude_level=1,
        magnitude_std=0.5,
        hparams=dict(pad_val=[104, 116, 124], interpolation='bicubic'),
    ),
    dict(type='PackInputs'),
]
train_dataloader = dict(
    batch_size=64,
    dataset=dict(per_class=5, dataset=dict(pipeline=train_pipeline)),
    sampler=dict(_delete_=True, type='DefaultSampler', shuffle=True),
)
val_dataloader = dict(dataset=dict(per_class=5))
