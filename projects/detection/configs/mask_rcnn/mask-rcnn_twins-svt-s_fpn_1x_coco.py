"""Mask R-CNN on Twins-SVT-S, 12 epochs: the recipe of ViTAS (arXiv 2106.13700, App. A.1), which is that of Twins.

What a search of the Twins space found, or another size: ``--cfg-options model.backbone.arch=best_arch.json``.
No weights are published with vitnas; those of a classifier:
``--cfg-options model.backbone.init_cfg.type=Pretrained model.backbone.init_cfg.checkpoint=FILE``.
"""

_base_ = './mask-rcnn_s3-t_fpn_1x_coco.py'

model = dict(backbone=dict(type='vitnas.ViTASTwins', arch='twins-svt-s'))
