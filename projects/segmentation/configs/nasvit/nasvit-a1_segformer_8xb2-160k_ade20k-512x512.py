"""SegFormer's head on NASViT-A1, 160,000 iterations: the recipe of SegFormer, whose head the paper uses (Sec. 4.2).

The paper also uses windows of 7 × 7 and says nothing else of its training.
vitnas publishes no weights. Start from those of a classifier:
``--cfg-options model.backbone.init_cfg.type=Pretrained model.backbone.init_cfg.checkpoint=FILE``.
"""

_base_ = [
    'mmseg::segformer/segformer_mit-b0_8xb2-160k_ade20k-512x512.py',
    '../../../../configs/backbones/nasvit_a1_dense.py',
]
custom_imports = dict(imports=['vitnas_core'], allow_failed_imports=False)

model = dict(
    backbone=dict(_delete_=True, **_base_.backbone, drop_path_rate=0.1),
    decode_head=dict(in_channels='auto', in_index=[0, 1, 2, 3, 4]),
)
optim_wrapper = dict(constructor='vitnas.LayerDecayOptimWrapperConstructor')  # norms and positions do not decay
sync_bn = 'torch'  # two images per GPU are too few for batch norm
