"""ImageNet-1k with crops and flips only, as ViTAS trains superformers (Tab. 4, row 9); 50 images per class held out."""

_base_ = './imagenet.py'

train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='RandomResizedCrop', scale=224, backend='pillow', interpolation='bicubic'),
    dict(type='RandomFlip', prob=0.5, direction='horizontal'),
    dict(type='PackInputs'),
]
train_dataloader = dict(
    dataset=dict(per_class=50, dataset=dict(pipeline=train_pipeline)),
    sampler=dict(_delete_=True, type='DefaultSampler', shuffle=True),
)
val_dataloader = dict(dataset=dict(per_class=50))
