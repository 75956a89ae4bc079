"""The control without transformers (paper, Tab. 8): the same stages of convolutions only, no external teacher."""

_base_ = './nasvit_supernet_8xb64-360e_imagenet.py'

model = dict(backbone=dict(space='nasvit-conv'))
# The table's other rows: train_cfg.rule.distill.type=vitnas.KLDivergence, train_cfg.rule.conflict=None.
train_cfg = dict(rule=dict(teacher=None))
