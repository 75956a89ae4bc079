"""The micro NASViT's control without transformers: the same stages with convolutions only (paper, Tab. 8)."""

_base_ = './nasvit-micro_supernet_30e_digits.py'

attention = ('mlp_ratio', 'num_windows')
stages = [{name: choice for name, choice in stage.items() if name not in attention} for stage in _base_.stages]
model = dict(backbone=dict(space=dict(name='nasvit-conv-micro', stages=stages)))
