"""S3's supernet as a classifier: the largest, the smallest and two random architectures per step, no distillation.

Configs for a model size set ``model.backbone.space``.
"""

_base_ = '../_base_/default_runtime.py'

model = dict(
    type='ImageClassifier',
    backbone=dict(type='vitnas.S3', space='s3-initial', drop_path_rate=0.2),
    neck=dict(type='GlobalAveragePooling'),
    head=dict(
        type='LinearClsHead',
        num_classes=1000,
        in_channels='auto',
        loss=dict(type='LabelSmoothLoss', label_smooth_val=0.1, mode='original'),
        init_cfg=dict(type='TruncNormal', layer='Linear', std=0.02),
    ),
    train_cfg=dict(augments=[dict(type='Mixup', alpha=0.8), dict(type='CutMix', alpha=1.0)]),
)

train_cfg = dict(
    type='vitnas.SupernetTrainLoop',
    max_epochs=300,
    val_interval=25,
    sampler=dict(type='vitnas.SandwichSampler', num_random=2),
    rule=dict(type='vitnas.Sandwich'),
)
find_unused_parameters = True  # a step uses the parameters of its architectures only
default_hooks = dict(checkpoint=dict(interval=5))
custom_hooks = [dict(type='vitnas.SupernetReportHook', interval=25, num_random=3)]
