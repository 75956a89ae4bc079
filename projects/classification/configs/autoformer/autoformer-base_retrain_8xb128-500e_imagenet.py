"""Train the published AutoFormer-B alone.

For another network: ``--cfg-options model.backbone.arch=FILE``, or a zoo name.
"""

_base_ = './autoformer-tiny_retrain_8xb128-500e_imagenet.py'

model = dict(backbone=dict(arch='autoformer-base'))
