"""Train AutoFormer-T with inherited weights at 384 × 384.

For another subnet: ``--cfg-options model.backbone.arch=DIR/arch.json load_from=DIR/weights.safetensors``.

DIR is the output of ``tools/extract_subnet.py … --out DIR``. The recipe is that of DeiT for 384.
"""

_base_ = './autoformer-tiny_finetune_8xb128-30e_imagenet.py'

train_pipeline = _base_.train_pipeline
train_pipeline[1]['scale'] = 384
test_pipeline = _base_.test_pipeline
test_pipeline[1]['scale'] = 384 * 256 // 224
test_pipeline[2]['crop_size'] = 384
train_dataloader = dict(batch_size=64, dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(batch_size=128, dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader

model = dict(backbone=dict(img_size=384))  # absolute positions are interpolated, relative ones clipped at 14
optim_wrapper = dict(optimizer=dict(lr=5e-6, weight_decay=1e-8))
param_scheduler = None  # lr stays at its minimum
auto_scale_lr = dict(base_batch_size=512)
