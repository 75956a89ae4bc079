"""DeiT's schedule for 300 epochs, as in S3. No weight decay for relative position bias tables, as in Swin."""

_base_ = './deit_bs1024_500e.py'

optim_wrapper = dict(paramwise_cfg=dict(custom_keys={'attn.bias.tables': dict(decay_mult=0.0)}))
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, by_epoch=True, end=20, convert_to_iter_based=True),  # starts at 1e-6
    dict(type='CosineAnnealingLR', eta_min=1e-5, by_epoch=True, begin=20, end=300),
]
