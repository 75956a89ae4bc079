"""Train the supernet FocusFormer-B on ImageNet-1k by the paper's recipe."""

_base_ = './focusformer-tiny_supernet_8xb128-500e_imagenet.py'

model = dict(backbone=dict(space='autoformer-base'))
