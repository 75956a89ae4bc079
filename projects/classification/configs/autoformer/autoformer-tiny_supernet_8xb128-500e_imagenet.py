"""Train the supernet AutoFormer-T on ImageNet-1k by the published recipe, 8 × 128 images per step.

With other batch sizes ``--cfg-options auto_scale_lr.enable=True`` scales the learning rate.
"""

_base_ = [
    '../../../../configs/supernets/autoformer.py',
    '../../../../configs/_base_/datasets/imagenet.py',
    '../../../../configs/_base_/schedules/deit_bs1024_500e.py',
]
