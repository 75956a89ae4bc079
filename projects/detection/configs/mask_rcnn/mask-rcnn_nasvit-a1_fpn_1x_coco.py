"""Mask R-CNN on NASViT-A1, 12 epochs: the recipe of ViTAS (arXiv 2106.13700, App. A.1), which is that of Twins.

Stage 7, of stride 64, is the level that FPN pools for other backbones: anchors and RoIs are the stock ones, and every
weight trains; those of stages behind the last output would not.
Windows of 7 × 7 are those of the paper's segmentation; it detects nothing.
No weights are published with vitnas; those of a classifier:
``--cfg-options model.backbone.init_cfg.type=Pretrained model.backbone.init_cfg.checkpoint=FILE``.
"""

_base_ = 'mmdet::mask_rcnn/mask-rcnn_r50_fpn_1x_coco.py'
custom_imports = dict(imports=['vitnas_core'], allow_failed_imports=False)

model = dict(
    backbone=dict(
        _delete_=True,
        type='vitnas.NASViT',
        arch='nasvit-a1',
        out_indices=(2, 3, 4, 6, 7),
        window_size=7,
        drop_path_rate=0.2,
    ),
    neck=dict(in_channels='auto'),
)
optim_wrapper = dict(optimizer=dict(_delete_=True, type='AdamW', lr=2e-4, weight_decay=1e-4))
sync_bn = 'torch'  # two images are too few for the batch norms of a GPU alone
