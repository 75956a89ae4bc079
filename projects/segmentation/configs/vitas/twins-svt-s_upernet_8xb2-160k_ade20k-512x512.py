"""UperNet on Twins-SVT-S, 160,000 iterations: the recipe of ViTAS (arXiv 2106.13700, App. A.1), as in Twins.

Use another size or the result of a search of the Twins space: ``--cfg-options model.backbone.arch=best_arch.json``.
vitnas publishes no weights. Start from those of a classifier:
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
# As in mmseg's config, norms do not decay, but position convolutions do.
optim_wrapper = dict(constructor='vitnas.LayerDecayOptimWrapperConstructor', paramwise_cfg=dict(_delete_=True))
