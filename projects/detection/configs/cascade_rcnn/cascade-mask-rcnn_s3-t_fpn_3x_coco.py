"""Cascade Mask R-CNN on S3-T, 36 epochs (arXiv 2111.14725, App. C); weights as in the 1x config."""

_base_ = './cascade-mask-rcnn_s3-t_fpn_1x_coco.py'

model = dict(backbone=dict(drop_path_rate=0.2))
train_cfg = dict(max_epochs=36)
param_scheduler = [
    dict(type='LinearLR', start_factor=0.001, by_epoch=False, begin=0, end=1000),
    dict(type='MultiStepLR', by_epoch=True, begin=0, end=36, milestones=[27, 33], gamma=0.1),
]
