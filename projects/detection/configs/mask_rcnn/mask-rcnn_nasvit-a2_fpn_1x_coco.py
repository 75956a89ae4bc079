"""Mask R-CNN on NASViT-A2, 12 epochs; everything else as for NASViT-A1."""

_base_ = './mask-rcnn_nasvit-a1_fpn_1x_coco.py'

model = dict(backbone=dict(arch='nasvit-a2'))
