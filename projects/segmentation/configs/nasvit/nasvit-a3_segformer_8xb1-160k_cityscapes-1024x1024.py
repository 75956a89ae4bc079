"""SegFormer's head on NASViT-A3; everything else as for NASViT-A1."""

_base_ = './nasvit-a1_segformer_8xb1-160k_cityscapes-1024x1024.py'

model = dict(backbone=dict(arch='nasvit-a3'))
