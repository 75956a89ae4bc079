"""Semantic FPN on S3-B; everything else as for S3-T."""

_base_ = './s3-t_fpn_8xb4-80k_ade20k-512x512.py'

model = dict(backbone=dict(arch='s3-b'))
