"""Train ViT-Res-Tiny, the network that ViT-ResNAS starts from, alone.

Without residual reductions, as in Tab. 1: ``--cfg-options model.backbone.shortcut=False``.
"""

_base_ = './vit-resnas-tiny_retrain_8xb128-300e_imagenet.py'

model = dict(backbone=dict(arch='vit-res-tiny'))
