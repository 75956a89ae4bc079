"""Train NASViT's supernet as the published code does: other scaling, two teachers, projection from epoch 101."""

_base_ = './nasvit_supernet_8xb64-360e_imagenet.py'

model = dict(
    backbone=dict(official=True),
    train_cfg=dict(augments=[dict(type='Mixup', alpha=0.01), dict(type='CutMix', alpha=0.01)]),
)
train_pipeline = [
    *_base_.train_pipeline[:-1],
    dict(type='RandomErasing', erase_prob=0.01, mode='rand', fill_color=[104, 116, 124], fill_std=[57, 57, 58]),
    dict(type='PackInputs'),
]
train_dataloader = dict(dataset=dict(dataset=dict(pipeline=train_pipeline)))

teachers = [
    dict(type='mmpretrain.TimmClassifier', model_name=f'resnext101_{size}.fb_swsl_ig1b_ft_in1k', pretrained=True)
    for size in ('32x4d', '32x8d')
]
train_cfg = dict(
    max_epochs=400,
    rule=dict(
        teacher=dict(_delete_=True, type='vitnas.Teacher', models=teachers, sharpness=5.0),
        conflict=dict(cap=2.0, eps=1e-6, clip_subnets=1.0, start=101 / 400),
    ),
)
param_scheduler = [  # the cosine counts from the first epoch, not from the end of the warm-up
    dict(type='LinearLR', start_factor=1 / 600, by_epoch=True, end=5, convert_to_iter_based=True),
    dict(type='CosineAnnealingLR', eta_min=5e-6, by_epoch=True, begin=0, end=400, convert_to_iter_based=True),
]
# 64 batches of 64. The published code uses training images, this config held-out ones.
images = {**_base_.val_dataloader, 'batch_size': 64}
custom_hooks = [
    dict(type='vitnas.SupernetReportHook', interval=10, num_random=3),
    dict(type='vitnas.RecalibrateHook', dataloader=images, num_batches=64, average=True),
    dict(type='vitnas.ConflictMeterHook', interval=500),
    dict(type='EMAHook', momentum=1.5e-4),
]
