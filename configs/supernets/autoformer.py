"""AutoFormer's supernet as a classifier: entangled weights, one uniformly drawn architecture per step.

Configs for a model size set ``model.backbone.space``.
"""

_base_ = '../_base_/default_runtime.py'

model = dict(
    type='ImageClassifier',
    backbone=dict(type='vitnas.AutoFormer', space='autoformer-tiny', out_type='avg_featmap', drop_path_rate=0.1),
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
    max_epochs=500,
    val_interval=25,
    sampler=dict(type='vitnas.UniformSampler'),
    rule=dict(type='vitnas.SinglePath'),
)
find_unused_parameters = True  # a step uses the parameters of its architecture only
default_hooks = dict(checkpoint=dict(interval=5))
custom_hooks = [dict(type='vitnas.SupernetReportHook', interval=25, num_random=3)]
