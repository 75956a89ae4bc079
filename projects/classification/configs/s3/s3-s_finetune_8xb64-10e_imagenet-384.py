"""Train S3-S at 384 × 384 for 10 epochs from its weights at 224.

For other weights: ``--cfg-options load_from=FILE``.

Epochs, learning rate and weight decay are the paper's. Windows grow with the images, from 7 to 12 and from 14 to 24.
Their bias tables are interpolated.
"""

_base_ = './s3-s_retrain_8xb128-300e_imagenet.py'

train_pipeline = _base_.train_pipeline
train_pipeline[1]['scale'] = 384
test_pipeline = _base_.test_pipeline
test_pipeline[1]['scale'] = 384 * 256 // 224
test_pipeline[2]['crop_size'] = 384
train_dataloader = dict(batch_size=64, dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(batch_size=64, dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader

model = dict(backbone=dict(arch='s3-s-384', img_size=384))
load_from = 'work_dirs/s3-s_retrain_8xb128-300e_imagenet/epoch_300.pth'
train_cfg = dict(max_epochs=10, val_interval=5)
optim_wrapper = dict(optimizer=dict(lr=1e-5, weight_decay=1e-8))
param_scheduler = None  # the learning rate is constant
auto_scale_lr = dict(base_batch_size=512)
