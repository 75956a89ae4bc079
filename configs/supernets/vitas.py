"""ViTAS's superformer for the Twins space: cyclic channel sharing, one uniformly drawn architecture per step.

Configs for a model size set ``model.backbone.space``. Configs for the DeiT space set the whole backbone.
"""

_base_ = '../_base_/default_runtime.py'

model = dict(
    type='ImageClassifier',
    backbone=dict(type='vitnas.ViTASTwins', space='vitas-twins-small', sharing='cyclic'),
    neck=dict(type='GlobalAveragePooling'),
    head=dict(
        type='LinearClsHead',
        num_classes=1000,
        in_channels='auto',
        loss=dict(type='LabelSmoothLoss', label_smooth_val=0.1, mode='original'),
        init_cfg=dict(type='TruncNormal', layer='Linear', std=0.02),
    ),
)

train_cfg = dict(
    type='vitnas.SupernetTrainLoop',
    max_epochs=300,
    val_interval=25,
    sampler=dict(type='vitnas.UniformSampler'),
    rule=dict(type='vitnas.SinglePath'),
)
find_unused_parameters = True  # a step uses the parameters of its architecture only
default_hooks = dict(checkpoint=dict(interval=5))
custom_hooks = [dict(type='vitnas.SupernetReportHook', interval=25, num_random=3)]
