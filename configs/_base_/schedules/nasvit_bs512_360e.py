"""NASViT's schedule: Adam without weight decay, 3e-4 for a batch of 512, cosine after 5 epochs of warm-up."""

optim_wrapper = dict(optimizer=dict(type='AdamW', lr=3e-4, weight_decay=0.0))
param_scheduler = [
    dict(type='LinearLR', start_factor=1 / 600, by_epoch=True, end=5, convert_to_iter_based=True),  # starts at 5e-7
    dict(type='CosineAnnealingLR', eta_min=5e-6, by_epoch=True, begin=5, end=360, convert_to_iter_based=True),
]
val_cfg = dict()
test_cfg = dict()

# This lr is for 8 × 64 images. For another batch size, set auto_scale_lr.enable=True.
auto_scale_lr = dict(base_batch_size=512)
