"""RetinaNet on Twins-SVT-S, 12 epochs: the recipe of ViTAS (arXiv 2106.13700, App. A.1), as in Twins.

Use another size or the result of a search of the Twins space: ``--cfg-options model.backbone.arch=best_arch.json``.
vitnas publishes no weights. Start from those of a classifier:
``--cfg-options model.backbone.init_cfg.type=Pretrained model.backbone.init_cfg.checkpoint=FILE``.
"""

_base_ = './retinanet_s3-t_fpn_1x_coco.py'

model = dict(backbone=dict(type='vitnas.ViTASTwins', arch='twins-svt-s'))
