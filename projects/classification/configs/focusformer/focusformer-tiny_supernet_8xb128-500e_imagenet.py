"""Train the supernet FocusFormer-Ti on ImageNet-1k by the paper's recipe, 8 × 128 images per step.

With other batch sizes ``--cfg-options auto_scale_lr.enable=True`` scales the learning rate.
"""

_base_ = [
    '../../../../configs/supernets/focusformer.py',
    '../../../../configs/_base_/datasets/imagenet.py',
    '../../../../configs/_base_/schedules/deit_bs1024_500e.py',
]

train_dataloader = dict(sampler=dict(_delete_=True, type='DefaultSampler', shuffle=True))  # no repeated augmentation
optim_wrapper = dict(
    paramwise_cfg=dict(custom_keys=dict(peg=dict(decay_mult=0.0)))
)  # as in Twins, which has the same encoding
custom_hooks = [
    dict(type='vitnas.SupernetReportHook', interval=25, num_random=3),
    dict(
        type='vitnas.SamplerTrainHook',
        interval=40,
        iterations=100,
        beta=0.07,
        optimizer=dict(type='AdamW', lr=1e-3, weight_decay=0.05),
    ),
    dict(type='vitnas.ProgressiveLearningHook', start=160, end=224, step=16),
]
