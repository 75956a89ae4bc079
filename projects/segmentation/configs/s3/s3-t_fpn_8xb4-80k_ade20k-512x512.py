"""Semantic FPN on S3-T, 80,000 iterations: the recipe of ViTAS (arXiv 2106.13700, App. A.1), as in Twins.

The batch of 8 × 4 images is mmseg's for Twins; the paper's batch of 16 is for 4 GPUs.
vitnas publishes no weights. Start from those of a classifier:
``--cfg-options model.backbone.init_cfg.type=Pretrained model.backbone.init_cfg.checkpoint=FILE``.
"""

_base_ = 'mmseg::twins/twins_svt-s_fpn_fpnhead_8xb4-80k_ade20k-512x512.py'
custom_imports = dict(imports=['vitnas_core'], allow_failed_imports=False)

model = dict(
    backbone=dict(_delete_=True, type='vitnas.S3', arch='s3-t', out_indices=(0, 1, 2, 3), drop_path_rate=0.2),
    neck=dict(in_channels='auto'),
)
# mmseg's schedule ends at a learning rate of 1e-4, where AdamW starts: it would not fall at all.
param_scheduler = [dict(type='PolyLR', power=0.9, eta_min=0.0, by_epoch=False, begin=0, end=80000)]
