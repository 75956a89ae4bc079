"""Semantic FPN on AutoFormer-B; everything else as for AutoFormer-S."""

_base_ = './autoformer-small_fpn_8xb4-80k_ade20k-512x512.py'

model = dict(backbone=dict(arch='autoformer-base'))
