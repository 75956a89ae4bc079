"""Train a micro AutoFormer supernet on the embedded digits: sandwich, about two minutes on two cores."""

_base_ = [
    '../../../../configs/supernets/autoformer.py',
    '../../../../configs/_base_/datasets/digits.py',
    '../../../../configs/_base_/schedules/micro.py',
]

space = dict(
    _delete_=True,
    family='autoformer',
    name='autoformer-micro',
    stages=[
        dict(
            embed_dim=[32, 48, 64, 80, 96],
            depth=[2, 3, 4, 5],
            block=dict(num_heads=[1, 2], mlp_ratio=[0.5, 1.0, 2.0, 3.0]),
        )
    ],
)
model = dict(
    backbone=dict(space=space, img_size=32, patch_size=8, reach=4, drop_path_rate=0.0),
    head=dict(num_classes=10, topk=(1,)),
    train_cfg=None,
)

train_cfg = dict(
    max_epochs=40,
    val_interval=40,
    sampler=dict(type='vitnas.SandwichSampler', num_random=1),
    rule=dict(type='vitnas.Sandwich'),
)
param_scheduler = [
    dict(type='LinearLR', start_factor=0.01, by_epoch=True, end=5, convert_to_iter_based=True),
    dict(type='CosineAnnealingLR', eta_min=1e-5, by_epoch=True, begin=5, end=40, convert_to_iter_based=True),
]
default_hooks = dict(checkpoint=dict(interval=10))
custom_hooks = [dict(type='vitnas.SupernetReportHook', interval=10, num_random=3)]
