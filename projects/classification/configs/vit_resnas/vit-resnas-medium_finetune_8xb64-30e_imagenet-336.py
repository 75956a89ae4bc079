"""Train ViT-ResNAS-Medium at 336 × 336 for 30 epochs from its weights at 224; everything else as at 280."""

_base_ = './vit-resnas-medium_finetune_8xb64-30e_imagenet-280.py'

size = 336
train_pipeline = _base_.train_pipeline
train_pipeline[1]['scale'] = size
test_pipeline = _base_.test_pipeline
test_pipeline[1]['scale'] = size * 256 // 224
test_pipeline[2]['crop_size'] = size
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader

data_preprocessor = dict(token_mix=dict(grid=size // 56))
model = dict(backbone=dict(img_size=size))
