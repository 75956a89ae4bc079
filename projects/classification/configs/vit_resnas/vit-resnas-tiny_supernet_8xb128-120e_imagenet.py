"""Train the supernet of ViT-ResNAS-Tiny on ImageNet-1k: sixteen architectures per step, two on each of 8 GPUs."""

_base_ = [
    '../../../../configs/supernets/vit_resnas.py',
    '../../../../configs/_base_/datasets/imagenet.py',
    '../../../../configs/_base_/schedules/vit_resnas_bs1024_300e.py',
]

# The published code mixes the first half of every batch by CutMix and the second by Mixup. It also interleaves the
# architectures, so each gets both: data_preprocessor.token_mix.switch=halves train_cfg.rule.interleaved=True.
data_preprocessor = dict(type='vitnas.TokenLabelPreprocessor', token_mix=dict(grid=4))
# 25 training images of each class are held out; no repeated augmentation.
train_dataloader = dict(dataset=dict(per_class=25), sampler=dict(_delete_=True, type='DefaultSampler', shuffle=True))
val_dataloader = dict(dataset=dict(per_class=25))
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, by_epoch=True, end=5, convert_to_iter_based=True),  # starts at 1e-6
    dict(type='CosineAnnealingLR', eta_min=1e-5, by_epoch=True, begin=5, end=120),
]
