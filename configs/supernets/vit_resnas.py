"""ViT-ResNAS's supernet as a classifier: sixteen architectures split a batch; widths and depths open gradually.

Configs for a model size set ``model.backbone.space`` and token labeling:
``data_preprocessor = dict(type='vitnas.TokenLabelPreprocessor', token_mix=dict(grid=4))``.
"""

_base_ = '../_base_/supernet_runtime.py'

model = dict(
    type='ImageClassifier',
    backbone=dict(type='vitnas.ViTRes', space='vit-resnas-tiny', out_type='raw', drop_path_rate=0.2),
    head=dict(
        type='vitnas.TokenLabelHead',
        num_classes=1000,
        in_channels='auto',
        loss=dict(type='CrossEntropyLoss', use_soft=True),
        init_cfg=dict(type='TruncNormal', layer='Linear', std=0.02),
    ),
)

train_cfg = dict(
    type='vitnas.SupernetTrainLoop',
    max_epochs=120,
    val_interval=10,
    sampler=dict(
        type='vitnas.WarmUpSampler', fraction=0.25, sampler=dict(type='vitnas.MultiArchSampler', num_archs=16)
    ),
    rule=dict(type='vitnas.MultiArch'),
)
custom_hooks = [dict(type='vitnas.SupernetReportHook', interval=10, num_random=3)]
