"""Mask R-CNN on ViT-ResNAS-Medium, 12 epochs; everything else as for ViT-ResNAS-Tiny."""

_base_ = './mask-rcnn_vit-resnas-tiny_fpn_1x_coco.py'

model = dict(backbone=dict(arch='vit-resnas-medium'))
