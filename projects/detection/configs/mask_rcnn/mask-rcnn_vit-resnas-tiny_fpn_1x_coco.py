"""Mask R-CNN on ViT-ResNAS-Tiny, 12 epochs: the recipe of ViTAS (arXiv 2106.13700, App. A.1), as in Twins.

Strides are 14, 28 and 56, then 112 by pooling. Anchors of 2 × 14 are about as large as the stock 8 × 4. An RoI of 196
pixels covers as many cells of 14 as the stock 56 pixels cover cells of 4. The paper reports no detection results.
vitnas publishes no weights. Start from those of a classifier:
``--cfg-options model.backbone.init_cfg.type=Pretrained model.backbone.init_cfg.checkpoint=FILE``.
"""

_base_ = 'mmdet::mask_rcnn/mask-rcnn_r50_fpn_1x_coco.py'
custom_imports = dict(imports=['vitnas_core'], allow_failed_imports=False)

model = dict(
    backbone=dict(
        _delete_=True, type='vitnas.ViTRes', arch='vit-resnas-tiny', out_indices=(0, 1, 2), drop_path_rate=0.2
    ),
    neck=dict(in_channels='auto', num_outs=4),
    rpn_head=dict(anchor_generator=dict(scales=[2], strides='auto')),
    roi_head=dict(
        bbox_roi_extractor=dict(featmap_strides='auto', finest_scale=196),
        mask_roi_extractor=dict(featmap_strides='auto', finest_scale=196),
    ),
)
optim_wrapper = dict(optimizer=dict(_delete_=True, type='AdamW', lr=2e-4, weight_decay=1e-4))
