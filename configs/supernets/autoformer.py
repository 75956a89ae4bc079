"""AutoFormer's supernet as a classifier: entangled weights, one uniformly drawn architecture per step.

Configs for a model size set ``model.backbone.space``.
"""

_base_ = ['../_base_/models/linear_classifier.py', '../_base_/supernet_runtime.py']

model = dict(
    backbone=dict(type='vitnas.AutoFormer', space='autoformer-tiny', out_type='avg_featmap', drop_path_rate=0.1),
    train_cfg=dict(augments=[dict(type='Mixup', alpha=0.8), dict(type='CutMix', alpha=1.0)]),
)

train_cfg = dict(
    type='vitnas.SupernetTrainLoop',
    max_epochs=500,
    val_interval=25,
    sampler=dict(type='vitnas.UniformSampler'),
    rule=dict(type='vitnas.SinglePath'),
)
custom_hooks = [dict(type='vitnas.SupernetReportHook', interval=25, num_random=3)]
