"""UperNet on Twins-SVT-S, 160,000 iterations: the recipe of ViTAS (arXiv 2106.13700, App. A.1), which is that of Twins.

What a search of the Twins space found, or another size: ``--cfg-options model.backbone.arch=best_arch.json``.
No weights are published with vitnas; those of a classifier:
``--cfg-options model.backbone.init_cfg.type=Pretrained model.backbone.init_cfg.checkpoint=FILE``.
"""

_base_ = 'mmseg::twins/twins_svt-s_uperhead_8xb2-160k_ade20k-512x512.py'
custom_imports = dict(imports=['vitnas_core'], allow_failed_imports=False)

model = dict(
    backbone=dict(
        _delete_=True, type='vitnas.ViTASTwins', arch='twins-svt-s', out_indices=(0, 1, 2, 3), drop_path_rate=0.2
    ),
    decode_head=dict(in_channels='auto'),
    auxiliary_head=dict(in_channels='auto'),
)
# Norms do not decay, as in mmseg's config; its convolutions of positions do, here and there.
optim_wrapper = dict(constructor='vitnas.LayerDecayOptimWrapperConstructor', paramwise_cfg=dict(_delete_=True))
