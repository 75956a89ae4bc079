"""Train ViT-ResNAS-Medium at 280 × 280 for 30 epochs from its weights at 224.

For other weights: ``--cfg-options load_from=FILE``.

Batch size, learning rate and weight decay are the paper's. The published scripts use half the batch size, and a rule
that halves the learning rate with it. Positions are interpolated.
"""

_base_ = './vit-resnas-medium_retrain_8xb128-300e_imagenet.py'

size = 280
train_pipeline = _base_.train_pipeline
train_pipeline[1]['scale'] = size
test_pipeline = _base_.test_pipeline
test_pipeline[1]['scale'] = size * 256 // 224
test_pipeline[2]['crop_size'] = size
train_dataloader = dict(batch_size=64, dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(batch_size=64, dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader

data_preprocessor = dict(token_mix=dict(grid=size // 56))
model = dict(backbone=dict(img_size=size, drop_path_rate=0.75))
load_from = 'work_dirs/vit-resnas-medium_retrain_8xb128-300e_imagenet/epoch_300.pth'
train_cfg = dict(max_epochs=30, val_interval=5)
optim_wrapper = dict(optimizer=dict(lr=5e-6, weight_decay=1e-8))
param_scheduler = None  # constant learning rate: the published minimum equals it
auto_scale_lr = dict(base_batch_size=512)
