"""ViTAS's superformer for the Twins space: cyclic channel sharing, one uniformly drawn architecture per step.

Configs for a model size set ``model.backbone.space``. Configs for the DeiT space set the whole backbone.
"""

_base_ = ['../_base_/models/linear_classifier.py', '../_base_/supernet_runtime.py']

model = dict(
    backbone=dict(type='vitnas.ViTASTwins', space='vitas-twins-small', sharing='cyclic'),
    neck=dict(type='GlobalAveragePooling'),
)

train_cfg = dict(
    type='vitnas.SupernetTrainLoop',
    max_epochs=300,
    val_interval=25,
    sampler=dict(type='vitnas.UniformSampler'),
    rule=dict(type='vitnas.SinglePath'),
)
custom_hooks = [dict(type='vitnas.SupernetReportHook', interval=25, num_random=3)]
