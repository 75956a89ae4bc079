"""ImageNet-1k as in AutoFormer: DeiT's augmentation, 100 training images per class held out for the search.

Training uses the rest, ``val`` is the held-out part, ``test`` the official validation set. Expects
``data/imagenet/{train,val}/`` with one folder per class, or ``meta/{train,val}.txt`` beside them.
"""

# RandAugment m9-mstd0.5-inc1, random erasing 0.25 by pixels, bicubic resizing to 256 and a center crop of 224.
# DeiT's color jitter of 0.4 is left out, because timm switches it off whenever it applies RandAugment.
_base_ = 'mmpretrain::_base_/datasets/imagenet_bs64_swin_224.py'

per_class = 100
train_dataloader = dict(
    batch_size=128,
    num_workers=8,
    persistent_workers=True,
    dataset=dict(
        _delete_=True,
        type='vitnas.HoldOut',
        part='train',
        per_class=per_class,
        dataset=_base_.train_dataloader.dataset,
    ),
    # Repeated augmentation, as in the published code: each epoch has three augmented copies of a third of the
    # images. FocusFormer does not use it: train_dataloader.sampler.type=DefaultSampler.
    sampler=dict(type='RepeatAugSampler', shuffle=True),
    drop_last=True,
)
val_dataloader = dict(
    batch_size=256,
    num_workers=8,
    persistent_workers=True,
    dataset=dict(
        _delete_=True,
        type='vitnas.HoldOut',
        part='holdout',
        per_class=per_class,
        dataset={**_base_.train_dataloader.dataset, 'pipeline': _base_.test_pipeline},
    ),
)
test_dataloader = dict(batch_size=256, num_workers=8, persistent_workers=True)
