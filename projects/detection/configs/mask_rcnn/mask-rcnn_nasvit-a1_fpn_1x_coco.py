"""Mask R-CNN on NASViT-A1, 12 epochs: the recipe of ViTAS (arXiv 2106.13700, App. A.1), as in Twins.

Stage 7 has stride 64, the level that FPN gets by pooling for other backbones. So anchors and RoIs are the stock ones,
and every weight trains; stages after the last output would not.
Windows of 7 × 7 are those of the paper's segmentation; the paper reports no detection results.
vitnas publishes no weights. Start from those of a classifier:
``--cfg-options model.backbone.init_cfg.type=Pretrained model.backbone.init_cfg.checkpoint=FILE``.
"""

_base_ = ['mmdet::mask_rcnn/mask-rcnn_r50_fpn_1x_coco.py', '../../../../configs/backbones/nasvit_a1_dense.py']
custom_imports = dict(imports=['vitnas_core'], allow_failed_imports=False)

model = dict(
    backbone=dict(_delete_=True, **_base_.backbone, drop_path_rate=0.2),
    neck=dict(in_channels='auto'),
)
optim_wrapper = dict(optimizer=dict(_delete_=True, type='AdamW', lr=2e-4, weight_decay=1e-4))
sync_bn = 'torch'  # two images per GPU are too few for batch norm
