"""Train on the scenes for 4 epochs of 150 steps: AdamW, a short warm-up, cosine."""

train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=4, val_interval=4)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
optim_wrapper = dict(
    type='OptimWrapper',
    constructor='vitnas.LayerDecayOptimWrapperConstructor',
    optimizer=dict(type='AdamW', lr=1e-3, weight_decay=0.05),
    clip_grad=dict(max_norm=5.0),
)
param_scheduler = [
    dict(type='LinearLR', start_factor=0.01, by_epoch=False, end=40),
    dict(type='CosineAnnealingLR', eta_min=1e-5, by_epoch=True, end=4, convert_to_iter_based=True),
]
