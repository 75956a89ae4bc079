"""NASViT's remedies on a micro AutoFormer: switchable scaling, projected gradients, and the conflict meter."""

_base_ = '../autoformer/autoformer-micro_supernet_40e_digits.py'

model = dict(backbone=dict(scaling=True))
conflict = dict(type='vitnas.GradientProjection', keep='subnets')
train_cfg = dict(rule=dict(distill=dict(type='vitnas.KLDivergence'), conflict=conflict))
custom_hooks = [dict(type='vitnas.ProgressHook'), dict(type='vitnas.ConflictMeterHook', interval=17)]
