"""A Mask R-CNN whose backbone is elastic, trained on four fifths of the scenes by the sandwich rule.

Its backbone starts from the whole supernet of ``s3-micro_supernet_120e_drawn-digits.py``.
"""

_base_ = ['./mask-rcnn_s3-micro_fpn_4e_scenes.py', '../../../../configs/spaces/s3_micro_scenes.py']

model = dict(backbone=dict(arch=None, space=_base_.space))
train_cfg = dict(
    type='vitnas.SupernetTrainLoop',
    max_epochs=8,
    val_interval=8,
    sampler=dict(type='vitnas.SandwichSampler', num_random=1),
    rule=dict(type='vitnas.Sandwich'),
)
param_scheduler = [
    dict(type='LinearLR', start_factor=0.01, by_epoch=False, end=40),
    dict(type='CosineAnnealingLR', eta_min=1e-5, by_epoch=True, end=8, convert_to_iter_based=True),
]
# A held-out fifth of the training scenes validates the supernet and compares the candidates of a search.
train_dataloader = dict(dataset=dict(_delete_=True, **_base_.supernet_dataset))
val_dataloader = dict(_delete_=True, **_base_.holdout_dataloader)
val_evaluator = dict(_delete_=True, **_base_.holdout_evaluator)
custom_hooks = [
    dict(type='vitnas.ProgressHook'),
    dict(type='vitnas.SupernetReportHook', interval=8, num_random=2),
]
find_unused_parameters = True
