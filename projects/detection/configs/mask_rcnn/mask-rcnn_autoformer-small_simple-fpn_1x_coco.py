"""Mask R-CNN on AutoFormer-S, 12 epochs, with ViTDet's simple feature pyramid; the recipe of S3-T."""

_base_ = './mask-rcnn_s3-t_fpn_1x_coco.py'

model = dict(
    backbone=dict(_delete_=True, type='vitnas.AutoFormer', arch='autoformer-small', drop_path_rate=0.2),
    neck=dict(_delete_=True, type='vitnas.SimpleFeaturePyramid', in_channels='auto', num_outs=5),
)
