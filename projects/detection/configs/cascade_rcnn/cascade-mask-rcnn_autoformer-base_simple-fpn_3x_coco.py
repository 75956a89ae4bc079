"""Cascade Mask R-CNN on AutoFormer-B, 36 epochs; everything else as for AutoFormer-S."""

_base_ = './cascade-mask-rcnn_autoformer-small_simple-fpn_3x_coco.py'

model = dict(backbone=dict(arch='autoformer-base', drop_path_rate=0.3))
