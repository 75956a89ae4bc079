"""Mask R-CNN on S3-T, 12 epochs: the recipe of ViTAS (arXiv 2106.13700, App. A.1), as in Twins.

vitnas publishes no weights. Start from those of a classifier:
``--cfg-options model.backbone.init_cfg.type=Pretrained model.backbone.init_cfg.checkpoint=FILE``.
"""

_base_ = 'mmdet::mask_rcnn/mask-rcnn_r50_fpn_1x_coco.py'
custom_imports = dict(imports=['vitnas_core'], allow_failed_imports=False)

model = dict(
    backbone=dict(_delete_=True, type='vitnas.S3', arch='s3-t', out_indices=(0, 1, 2, 3), drop_path_rate=0.2),
    neck=dict(in_channels='auto'),
)
optim_wrapper = dict(optimizer=dict(_delete_=True, type='AdamW', lr=2e-4, weight_decay=1e-4))
