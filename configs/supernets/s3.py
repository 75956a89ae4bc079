"""S3's supernet as a classifier: the largest, the smallest and two random architectures per step, no distillation.

Configs for a model size set ``model.backbone.space``.
"""

_base_ = ['../_base_/models/linear_classifier.py', '../_base_/supernet_runtime.py']

model = dict(
    backbone=dict(type='vitnas.S3', space='s3-initial', drop_path_rate=0.2),
    neck=dict(type='GlobalAveragePooling'),
    train_cfg=dict(augments=[dict(type='Mixup', alpha=0.8), dict(type='CutMix', alpha=1.0)]),
)

train_cfg = dict(
    type='vitnas.SupernetTrainLoop',
    max_epochs=300,
    val_interval=25,
    sampler=dict(type='vitnas.SandwichSampler', num_random=2),
    rule=dict(type='vitnas.Sandwich'),
)
custom_hooks = [dict(type='vitnas.SupernetReportHook', interval=25, num_random=3)]
