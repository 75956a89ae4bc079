"""DeiT's schedule as in AutoFormer: AdamW, 20 epochs of warm-up, a cosine until epoch 500, no clipping, no EMA."""

optim_wrapper = dict(
    # The published code uses float16 with loss scaling: type=AmpOptimWrapper loss_scale=dynamic. bfloat16 needs none.
    type='vitnas.BFloat16OptimWrapper',
    optimizer=dict(type='AdamW', lr=5e-4 * 1024 / 512, weight_decay=0.05, eps=1e-8, betas=(0.9, 0.999)),
    # Relative positions have weight decay, as in the published code.
    paramwise_cfg=dict(
        norm_decay_mult=0.0,
        bias_decay_mult=0.0,
        flat_decay_mult=0.0,
        custom_keys=dict(cls_token=dict(decay_mult=0.0), pos_embed=dict(decay_mult=0.0)),
    ),
)
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, by_epoch=True, end=20, convert_to_iter_based=True),  # starts at 1e-6
    dict(type='CosineAnnealingLR', eta_min=1e-5, by_epoch=True, begin=20, end=500),
]
val_cfg = dict()
test_cfg = dict()

# This lr is for 8 × 128 images. For another batch size, set auto_scale_lr.enable=True.
auto_scale_lr = dict(base_batch_size=1024)
