"""Train the supernet of the evolved space on ImageNet-1k; of another: ``--cfg-options model.backbone.space=FILE``.

The space search trains this one by itself; this is for a space that one has, or wants to train longer.
"""

_base_ = [
    '../../../../configs/supernets/s3.py',
    '../../../../configs/_base_/datasets/imagenet.py',
    '../../../../configs/_base_/schedules/deit_bs1024_300e.py',
]

model = dict(backbone=dict(space='work_dirs/s3-t_space_8xb128-300e_imagenet/step_3/space.json'))
