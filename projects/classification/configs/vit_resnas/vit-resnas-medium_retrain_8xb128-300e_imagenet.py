"""Train the published ViT-ResNAS-Medium alone; the published script has a drop path rate of 0.3."""

_base_ = './vit-resnas-tiny_retrain_8xb128-300e_imagenet.py'

model = dict(backbone=dict(arch='vit-resnas-medium', drop_path_rate=0.4))
