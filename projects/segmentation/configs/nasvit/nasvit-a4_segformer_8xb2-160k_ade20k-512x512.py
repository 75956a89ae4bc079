"""SegFormer's head on NASViT-A4; everything else as for NASViT-A1."""

_base_ = './nasvit-a1_segformer_8xb2-160k_ade20k-512x512.py'

model = dict(backbone=dict(arch='nasvit-a4'))
