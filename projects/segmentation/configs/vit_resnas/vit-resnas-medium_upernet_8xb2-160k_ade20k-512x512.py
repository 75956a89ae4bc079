"""UperNet on ViT-ResNAS-Medium; everything else as for ViT-ResNAS-Tiny."""

_base_ = './vit-resnas-tiny_upernet_8xb2-160k_ade20k-512x512.py'

model = dict(backbone=dict(arch='vit-resnas-medium'))
