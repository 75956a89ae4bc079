"""Cascade Mask R-CNN on S3-S, 12 epochs; everything else as for S3-T."""

_base_ = './cascade-mask-rcnn_s3-t_fpn_1x_coco.py'

model = dict(backbone=dict(arch='s3-s', drop_path_rate=0.2))
