"""Train ViTAS's superformer for the DeiT-tiny space on ImageNet-1k (Tab. 2, Tab. 5).

For the small space: ``--cfg-options model.backbone.space=vitas-deit-small``. For identities at any position, as in the
ablation: ``vitas-deit-tiny-free``. For one class token for all patches: ``model.backbone.private_token=False``.
"""

_base_ = [
    '../../../../configs/supernets/vitas.py',
    '../../../../configs/_base_/datasets/imagenet_plain.py',
    '../../../../configs/_base_/schedules/vitas_bs1024_300e.py',
]

model = dict(
    backbone=dict(type='vitnas.ViTASDeiT', space='vitas-deit-tiny', out_type='cls_token'),
    neck=None,
)
