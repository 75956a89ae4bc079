"""UperNet on ViT-ResNAS-Tiny, 160,000 iterations: the recipe of Swin. The paper reports no segmentation results.

Feature maps have strides 14, 28 and 56, so predictions are coarser than with strides 4 to 32 of other backbones.
vitnas publishes no weights. Start from those of a classifier:
``--cfg-options model.backbone.init_cfg.type=Pretrained model.backbone.init_cfg.checkpoint=FILE``.
"""

_base_ = 'mmseg::swin/swin-tiny-patch4-window7-in1k-pre_upernet_8xb2-160k_ade20k-512x512.py'
custom_imports = dict(imports=['vitnas_core'], allow_failed_imports=False)

model = dict(
    backbone=dict(
        _delete_=True, type='vitnas.ViTRes', arch='vit-resnas-tiny', out_indices=(0, 1, 2), drop_path_rate=0.3
    ),
    decode_head=dict(in_channels='auto', in_index=[0, 1, 2]),
    auxiliary_head=dict(in_channels='auto', in_index=1),
)
optim_wrapper = dict(
    constructor='vitnas.LayerDecayOptimWrapperConstructor',  # norms and positions do not decay
    paramwise_cfg=dict(_delete_=True),
)
