"""The control without transformers (paper, Tab. 8): the same stages of convolutions only, no external teacher."""

_base_ = './nasvit_supernet_8xb64-360e_imagenet.py'

model = dict(backbone=dict(space='nasvit-conv'))
# This is the table's last row, "AlphaNet (w/ α-div) + Ours", but for switchable scaling, which belongs to transformer
# layers and has no place in MBConvs; "(w/ KL) + Ours": train_cfg.rule.distill.type=vitnas.KLDivergence. "Ours" is all
# the techniques: without it, conflict=None is one part, AlphaNet's strong augmentation and regularisation (Tab. 5) the
# other, for which there is no config.
train_cfg = dict(rule=dict(teacher=None))
