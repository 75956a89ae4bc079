"""ViTAS's schedule (its Tab. 5): AdamW at 1e-3, 5 epochs of warm-up, a cosine to 0 at epoch 300, no weight decay."""

_base_ = './deit_bs1024_500e.py'

optim_wrapper = dict(optimizer=dict(weight_decay=0.0))
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, by_epoch=True, end=5, convert_to_iter_based=True),  # starts at 1e-6
    dict(type='CosineAnnealingLR', eta_min=0.0, by_epoch=True, begin=5, end=300),
]
