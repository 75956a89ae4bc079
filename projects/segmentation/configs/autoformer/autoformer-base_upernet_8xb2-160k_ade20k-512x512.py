"""UperNet on AutoFormer-B; everything else as for AutoFormer-S."""

_base_ = './autoformer-small_upernet_8xb2-160k_ade20k-512x512.py'

model = dict(backbone=dict(arch='autoformer-base', drop_path_rate=0.3))
