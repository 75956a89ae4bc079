"""Semantic FPN on AutoFormer-S with ViTDet's simple feature pyramid; the recipe of S3-T."""

_base_ = '../s3/s3-t_fpn_8xb4-80k_ade20k-512x512.py'

model = dict(
    # Positions have the size of the crops; those of a checkpoint are interpolated on loading.
    backbone=dict(_delete_=True, type='vitnas.AutoFormer', arch='autoformer-small', img_size=512, drop_path_rate=0.2),
    neck=dict(_delete_=True, type='vitnas.SimpleFeaturePyramid', in_channels='auto', num_outs=4),
)
