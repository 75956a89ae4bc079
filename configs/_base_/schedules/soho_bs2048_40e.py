"""Schedule of S3's VQA model (arXiv 2111.14725, App. C), as in SOHO: 40 epochs, steps at 25 and 35.

A step has 2,048 pairs; the backbone learns ten times slower. The paper gives no weight decay; this one is BERT's.
"""

train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=40, val_interval=5)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='AdamW', lr=5e-5, weight_decay=0.01),
    paramwise_cfg=dict(norm_decay_mult=0.0, bias_decay_mult=0.0, custom_keys={'backbone': dict(lr_mult=0.1)}),
)
param_scheduler = [
    dict(type='LinearLR', start_factor=0.001, by_epoch=False, end=500),
    dict(type='MultiStepLR', milestones=[25, 35], gamma=0.1, by_epoch=True, end=40),
]
custom_hooks = [dict(type='vitnas.StepSeedHook')]  # resumes bit for bit from the start of an epoch (on a CPU)
auto_scale_lr = dict(base_batch_size=512)  # images, with four pairs each
