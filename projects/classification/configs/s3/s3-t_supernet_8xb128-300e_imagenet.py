"""Train the supernet of the evolved space on ImageNet-1k.

For another space: ``--cfg-options model.backbone.space=FILE``. The space search already trains this supernet. Use this
config for your own space, or to train longer.
"""

_base_ = [
    '../../../../configs/supernets/s3.py',
    '../../../../configs/_base_/datasets/imagenet.py',
    '../../../../configs/_base_/schedules/deit_bs1024_300e.py',
]

model = dict(backbone=dict(space='work_dirs/s3-t_space_8xb128-300e_imagenet/step_3/space.json'))
