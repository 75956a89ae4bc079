"""The optimizer of micro S3 networks: relative position bias tables do not decay, either."""

_base_ = './micro.py'

optim_wrapper = dict(paramwise_cfg=dict(custom_keys={'attn.bias.tables': dict(decay_mult=0.0)}))
