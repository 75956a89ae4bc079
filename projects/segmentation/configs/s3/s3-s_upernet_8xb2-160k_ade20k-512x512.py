"""UperNet on S3-S; everything else as for S3-T."""

_base_ = './s3-t_upernet_8xb2-160k_ade20k-512x512.py'

model = dict(backbone=dict(arch='s3-s'))
