"""The control without transformers (paper, Tab. 8): the same stages with convolutions only, no external teacher."""

_base_ = './nasvit_supernet_8xb64-360e_imagenet.py'

model = dict(backbone=dict(space='nasvit-conv'))
# This is the table's last row, "AlphaNet (w/ α-div) + Ours", without switchable scaling, which has no place in MBConvs.
# For "(w/ KL) + Ours", set train_cfg.rule.distill.type=vitnas.KLDivergence. The rows without "Ours" need conflict=None,
# and AlphaNet's strong augmentation and regularization (Tab. 5), for which there is no config.
train_cfg = dict(rule=dict(teacher=None))
