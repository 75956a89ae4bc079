"""UperNet on S3-T, 160,000 iterations: the recipe of Swin, as in S3 (arXiv 2111.14725, App. C).

vitnas publishes no weights. Start from those of a classifier:
``--cfg-options model.backbone.init_cfg.type=Pretrained model.backbone.init_cfg.checkpoint=FILE``.
"""

_base_ = 'mmseg::swin/swin-tiny-patch4-window7-in1k-pre_upernet_8xb2-160k_ade20k-512x512.py'
custom_imports = dict(imports=['vitnas_core'], allow_failed_imports=False)

model = dict(
    # Drop path 0.3 for every size, as in Swin's repository. S3 says that it uses "all the hyperparameters" of Swin.
    backbone=dict(_delete_=True, type='vitnas.S3', arch='s3-t', out_indices=(0, 1, 2, 3), drop_path_rate=0.3),
    decode_head=dict(in_channels='auto'),
    auxiliary_head=dict(in_channels='auto'),
)
optim_wrapper = dict(
    constructor='vitnas.LayerDecayOptimWrapperConstructor',  # norms and positions do not decay
    paramwise_cfg=dict(_delete_=True),
)
