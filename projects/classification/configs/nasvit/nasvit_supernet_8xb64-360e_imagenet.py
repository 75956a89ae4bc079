"""Train NASViT's supernet on ImageNet-1k as in the paper: EfficientNet-B5 teaches the largest architecture."""

_base_ = [
    '../../../../configs/supernets/nasvit.py',
    '../../../../configs/_base_/datasets/imagenet_weak.py',
    '../../../../configs/_base_/schedules/nasvit_bs512_360e.py',
]

# 83.2 % on ImageNet (83.3 in the paper) at 456 × 456. The teacher gets the supernet's images, resized to this.
weights = (
    'https://download.openmmlab.com/mmclassification/v0/efficientnet/'
    'efficientnet-b5_3rdparty_8xb32_in1k_20220119-e9814430.pth'
)
teacher = dict(
    type='mmpretrain.ImageClassifier',
    backbone=dict(type='mmpretrain.EfficientNet', arch='b5'),
    neck=dict(type='mmpretrain.GlobalAveragePooling'),
    head=dict(type='mmpretrain.LinearClsHead', num_classes=1000, in_channels=2048),
    init_cfg=dict(type='Pretrained', checkpoint=weights),
)
train_cfg = dict(rule=dict(teacher=dict(type='vitnas.Teacher', models=teacher, input_size=456)))
custom_hooks = [
    dict(type='vitnas.SupernetReportHook', interval=10, num_random=3),
    dict(type='vitnas.RecalibrateHook', dataloader=_base_.val_dataloader, num_batches=16),
    dict(type='vitnas.ConflictMeterHook', interval=500),
]
