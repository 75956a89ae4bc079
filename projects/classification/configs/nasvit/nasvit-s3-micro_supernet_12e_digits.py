"""NASViT's remedies on a micro S3: switchable scaling, projected gradients, and the conflict meter."""

_base_ = '../s3/s3-micro_supernet_12e_digits.py'

model = dict(backbone=dict(scaling=True))
conflict = dict(type='vitnas.GradientProjection', keep='subnets')
train_cfg = dict(rule=dict(distill=dict(type='vitnas.KLDivergence'), conflict=conflict))
custom_hooks = [dict(type='vitnas.ProgressHook'), dict(type='vitnas.ConflictMeterHook', interval=17)]
