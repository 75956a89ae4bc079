"""A Mask R-CNN whose backbone is elastic, trained on four fifths of the scenes by the sandwich rule.

It starts from the supernet that ``bash tools/quickstart.sh`` trained on single digits.
"""

_base_ = './mask-rcnn_autoformer-micro_simple-fpn_12e_scenes.py'

model = dict(
    backbone=dict(
        arch=None,
        space=dict(
            family='autoformer',
            name='autoformer-micro',
            stages=[
                dict(
                    embed_dim=[32, 48, 64, 80, 96],
                    depth=[2, 3, 4, 5],
                    block=dict(num_heads=[1, 2], mlp_ratio=[0.5, 1.0, 2.0, 3.0]),
                )
            ],
        ),
        init_cfg=dict(checkpoint='work_dirs/quickstart/seed0/supernet/epoch_40.pth'),
    ),
)
train_cfg = dict(
    type='vitnas.SupernetTrainLoop',
    sampler=dict(type='vitnas.SandwichSampler', num_random=1),
    rule=dict(type='vitnas.Sandwich'),
)
# A fifth of the training scenes is held out: what the supernet is watched on, and what a search compares candidates on.
train_dataloader = dict(dataset=dict(_delete_=True, **_base_.supernet_dataset))
val_dataloader = dict(_delete_=True, **_base_.holdout_dataloader)
val_evaluator = dict(_delete_=True, **_base_.holdout_evaluator)
custom_hooks = [dict(type='vitnas.SupernetReportHook', interval=12, num_random=2)]
find_unused_parameters = True
