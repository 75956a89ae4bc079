"""RetinaNet on AutoFormer-B, 12 epochs; everything else as for AutoFormer-S."""

_base_ = './retinanet_autoformer-small_simple-fpn_1x_coco.py'

model = dict(backbone=dict(arch='autoformer-base'))
