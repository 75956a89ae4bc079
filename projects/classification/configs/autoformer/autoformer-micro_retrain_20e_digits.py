"""Train a small AutoFormer alone on all training digits, about a minute on two cores. Test on the others.

For a search result: ``--cfg-options model.backbone.arch=SEARCH_DIR/best_arch.json``.
"""

_base_ = ['../../../../configs/_base_/default_runtime.py', '../../../../configs/_base_/datasets/digits.py']

arch = dict(
    family='autoformer',
    stages=[dict(embed_dim=96, blocks=[dict(num_heads=2, mlp_ratio=2.0)] * 4)],
)
model = dict(
    type='ImageClassifier',
    backbone=dict(type='vitnas.AutoFormer', arch=arch, img_size=32, patch_size=8, reach=4, out_type='avg_featmap'),
    head=dict(
        type='LinearClsHead',
        num_classes=10,
        in_channels='auto',
        loss=dict(type='LabelSmoothLoss', label_smooth_val=0.1),
    ),
)
# No comparison follows, so train on the held-out images too.
train_dataloader = dict(
    dataset=dict(_delete_=True, type='vitnas.Digits', split='train', pipeline=_base_.train_pipeline)
)
val_dataloader = dict(_delete_=True, **_base_.test_dataloader)

train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=20, val_interval=5)
optim_wrapper = dict(
    optimizer=dict(type='AdamW', lr=2e-3, weight_decay=0.05),
    paramwise_cfg=dict(norm_decay_mult=0.0, bias_decay_mult=0.0),
)
param_scheduler = [
    dict(type='LinearLR', start_factor=0.01, by_epoch=True, end=3, convert_to_iter_based=True),
    dict(type='CosineAnnealingLR', eta_min=1e-5, by_epoch=True, begin=3, end=20, convert_to_iter_based=True),
]
default_hooks = dict(checkpoint=dict(interval=5))
