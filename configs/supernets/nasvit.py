"""NASViT's supernet as a classifier: a sandwich of four with distillation and gradient projection.

Configs for a dataset may set ``train_cfg.rule.teacher``. The largest architecture then learns from it, not from labels.
"""

_base_ = '../_base_/supernet_runtime.py'

model = dict(
    type='ImageClassifier',
    backbone=dict(type='vitnas.NASViT', space='nasvit'),
    neck=dict(type='GlobalAveragePooling'),
    head=dict(
        type='LinearClsHead',
        num_classes=1000,
        in_channels='auto',
        loss=dict(type='LabelSmoothLoss', label_smooth_val=0.1, mode='original'),
    ),
)

train_cfg = dict(
    type='vitnas.SupernetTrainLoop',
    max_epochs=360,
    val_interval=10,
    sampler=dict(type='vitnas.SandwichSampler', num_random=2),
    rule=dict(
        type='vitnas.Sandwich',
        distill=dict(type='vitnas.AdaptiveAlphaDivergence'),
        conflict=dict(type='vitnas.GradientProjection', keep='subnets'),
    ),
)
