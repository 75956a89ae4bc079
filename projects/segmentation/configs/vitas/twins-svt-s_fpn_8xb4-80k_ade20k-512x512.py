"""Semantic FPN on Twins-SVT-S, 80,000 iterations: the recipe of ViTAS (arXiv 2106.13700, App. A.1), as in Twins.

Use the result of a search of the Twins space: ``--cfg-options model.backbone.arch=best_arch.json``. Large networks take
``model.backbone.drop_path_rate=0.4``.
vitnas publishes no weights. Start from those of a classifier:
``--cfg-options model.backbone.init_cfg.type=Pretrained model.backbone.init_cfg.checkpoint=FILE``.
"""

_base_ = '../s3/s3-t_fpn_8xb4-80k_ade20k-512x512.py'

model = dict(backbone=dict(type='vitnas.ViTASTwins', arch='twins-svt-s'))
