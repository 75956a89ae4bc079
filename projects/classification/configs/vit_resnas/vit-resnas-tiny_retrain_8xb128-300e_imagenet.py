"""Train the published ViT-ResNAS-Tiny alone.

For another network: ``--cfg-options model.backbone.arch=FILE``, or a zoo name.
"""

_base_ = [
    '../../../../configs/supernets/vit_resnas.py',
    '../../../../configs/_base_/datasets/imagenet.py',
    '../../../../configs/_base_/schedules/vit_resnas_bs1024_300e.py',
]

data_preprocessor = dict(type='vitnas.TokenLabelPreprocessor', token_mix=dict(grid=4))
model = dict(backbone=dict(space=None, arch='vit-resnas-tiny'))
train_cfg = dict(_delete_=True, type='EpochBasedTrainLoop', max_epochs=300, val_interval=10)
# The search is over: train on the whole training set. The last epoch counts, so val may show the test set.
train_dataloader = dict(
    dataset=dict(_delete_=True, **_base_.train_dataloader.dataset.dataset),
    sampler=dict(_delete_=True, type='DefaultSampler', shuffle=True),
)
val_dataloader = dict(_delete_=True, **_base_.test_dataloader)
find_unused_parameters = False
custom_hooks = [dict(type='EMAHook', momentum=4e-5)]  # as published; validation and result use these weights
