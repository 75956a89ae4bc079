"""Train the published ViT-ResNAS-Small alone."""

_base_ = './vit-resnas-tiny_retrain_8xb128-300e_imagenet.py'

model = dict(backbone=dict(arch='vit-resnas-small', drop_path_rate=0.3))
