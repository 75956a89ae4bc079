"""A VQA model with a micro S3 searched on single digits, for questions about scenes of digits.

Make the questions with ``python projects/vqa/tools/make_scenes_vqa.py``. To start from random weights instead of the
searched backbone's: ``--cfg-options model.backbone.init_cfg=None``.
"""

_base_ = [
    '../../../../configs/backbones/s3_micro_fpn.py',
    '../../../../configs/_base_/datasets/scenes_vqa.py',
    '../../../../configs/_base_/default_runtime.py',
]
custom_imports = dict(imports=['vitnas_core', 'projects.vqa.vqa'])

width = 96
model = dict(
    type='vitnas.VQAModel',
    data_preprocessor=_base_.data_preprocessor,
    backbone=dict(**_base_.backbone),
    neck=dict(type='vitnas.TokenNeck', in_channels='auto', out_channels=width, drop_rate=0.0),
    text=dict(
        type='vitnas.BertEncoder',
        vocab='data/scenes_vqa/vqa/vocab.txt',
        vocab_size=64,
        width=width,
        num_heads=4,
        positions=16,
        max_length=16,
        drop_rate=0.0,
    ),
    fusion=dict(
        type='vitnas.FusionTransformer',
        width=width,
        depth=2,
        num_heads=4,
        hidden=2 * width,
        drop_rate=0.0,
        init_std=0.06,
    ),
    head=dict(type='vitnas.VQAHead', answers='data/scenes_vqa/vqa/answers.json', num_answers=13, width=width),
)
model['backbone']['out_indices'] = (-1,)

train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=8, val_interval=8)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='AdamW', lr=1e-3, weight_decay=0.01),
    # Pretrained weights learn slower, or they forget before the other parts can use them.
    paramwise_cfg=dict(norm_decay_mult=0.0, bias_decay_mult=0.0, custom_keys={'backbone': dict(lr_mult=0.1)}),
    clip_grad=dict(max_norm=1.0),
)
param_scheduler = [
    dict(type='LinearLR', start_factor=0.01, by_epoch=False, end=200),
    dict(type='CosineAnnealingLR', eta_min=1e-5, by_epoch=True, end=8, convert_to_iter_based=True),
]
default_hooks = dict(checkpoint=dict(interval=2))
custom_hooks = [dict(type='vitnas.ProgressHook'), dict(type='vitnas.StepSeedHook')]
