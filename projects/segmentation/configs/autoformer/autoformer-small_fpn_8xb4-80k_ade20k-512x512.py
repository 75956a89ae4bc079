"""Semantic FPN on AutoFormer-S with ViTDet's simple feature pyramid; the recipe is that for S3-T."""

_base_ = '../s3/s3-t_fpn_8xb4-80k_ade20k-512x512.py'

model = dict(
    # Positions are stored for the crops, those of a checkpoint interpolated as it is loaded.
    backbone=dict(_delete_=True, type='vitnas.AutoFormer', arch='autoformer-small', img_size=512, drop_path_rate=0.2),
    neck=dict(_delete_=True, type='vitnas.SimpleFeaturePyramid', in_channels='auto', num_outs=4),
)
