"""Train the supernet of ViT-ResNAS-Small and -Medium on ImageNet-1k."""

_base_ = './vit-resnas-tiny_supernet_8xb128-120e_imagenet.py'

model = dict(backbone=dict(space='vit-resnas-small', drop_path_rate=0.3))
