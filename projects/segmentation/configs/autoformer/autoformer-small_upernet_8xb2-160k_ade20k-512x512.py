"""UperNet on AutoFormer-S with ViTDet's simple feature pyramid: the recipe for S3-T, with the drop path of ViTAS."""

_base_ = '../s3/s3-t_upernet_8xb2-160k_ade20k-512x512.py'

model = dict(
    # Positions have the size of the crops; those of a checkpoint are interpolated on loading.
    backbone=dict(_delete_=True, type='vitnas.AutoFormer', arch='autoformer-small', img_size=512, drop_path_rate=0.2),
    neck=dict(type='vitnas.SimpleFeaturePyramid', in_channels='auto', num_outs=4),
)
