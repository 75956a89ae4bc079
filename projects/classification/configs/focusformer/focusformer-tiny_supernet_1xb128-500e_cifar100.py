"""Train the supernet FocusFormer-Ti on CIFAR-100 by the paper's recipe."""

_base_ = [
    '../../../../configs/supernets/focusformer.py',
    '../../../../configs/_base_/datasets/cifar100.py',
    '../../../../configs/_base_/schedules/deit_bs1024_500e.py',
]

model = dict(head=dict(num_classes=100))
optim_wrapper = dict(
    optimizer=dict(lr=5e-4 * 128 / 512),
    paramwise_cfg=dict(custom_keys=dict(peg=dict(decay_mult=0.0))),  # as in Twins, which has the same encoding
)
auto_scale_lr = dict(base_batch_size=128)
custom_hooks = [
    dict(type='vitnas.SupernetReportHook', interval=25, num_random=3),
    dict(
        type='vitnas.SamplerTrainHook',
        interval=30,
        iterations=100,
        beta=0.07,
        optimizer=dict(type='AdamW', lr=2.5e-4, weight_decay=0.05),
    ),
    dict(type='vitnas.ProgressiveLearningHook', start=128, end=224, step=16),
]
