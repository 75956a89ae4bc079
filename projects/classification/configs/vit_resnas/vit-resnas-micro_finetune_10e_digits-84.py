"""Train the searched micro ViT-ResNAS at 84 × 84 for 10 epochs from its weights at 56; positions are interpolated."""

_base_ = './vit-resnas-micro_retrain_30e_digits.py'

size = 84
train_pipeline = _base_.train_pipeline
train_pipeline[0]['scale'] = train_pipeline[1]['crop_size'] = size
test_pipeline = _base_.test_pipeline
test_pipeline[0]['scale'] = size
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader

data_preprocessor = dict(token_mix=dict(grid=size // 28))
model = dict(backbone=dict(img_size=size))
load_from = 'work_dirs/vit-resnas-micro_retrain_30e_digits/epoch_30.pth'
train_cfg = dict(max_epochs=10, val_interval=5)
optim_wrapper = dict(optimizer=dict(lr=1e-3))
param_scheduler = [
    dict(type='LinearLR', start_factor=0.01, by_epoch=True, end=1, convert_to_iter_based=True),
    dict(type='CosineAnnealingLR', eta_min=1e-5, by_epoch=True, begin=1, end=10, convert_to_iter_based=True),
]
