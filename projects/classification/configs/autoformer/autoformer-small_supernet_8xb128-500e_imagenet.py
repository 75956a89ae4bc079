"""Train the supernet AutoFormer-S on ImageNet-1k by the published recipe."""

_base_ = './autoformer-tiny_supernet_8xb128-500e_imagenet.py'

model = dict(backbone=dict(space='autoformer-small'))
