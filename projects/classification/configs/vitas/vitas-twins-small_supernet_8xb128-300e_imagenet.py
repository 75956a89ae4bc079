"""Train ViTAS's superformer for the Twins-small space on ImageNet-1k (Tab. 1, Tab. 5).

For another size: ``--cfg-options model.backbone.space=vitas-twins-base``, or ``-large``.
"""

_base_ = [
    '../../../../configs/supernets/vitas.py',
    '../../../../configs/_base_/datasets/imagenet_plain.py',
    '../../../../configs/_base_/schedules/vitas_bs1024_300e.py',
]
