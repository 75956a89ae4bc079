"""Cascade Mask R-CNN on S3-T, 12 epochs: recipe and heads of Swin, as in S3 (arXiv 2111.14725, App. C).

vitnas publishes no weights. Start from those of a classifier:
``--cfg-options model.backbone.init_cfg.type=Pretrained model.backbone.init_cfg.checkpoint=FILE``.
"""

_base_ = 'mmdet::cascade_rcnn/cascade-mask-rcnn_r50_fpn_1x_coco.py'
custom_imports = dict(imports=['vitnas_core'], allow_failed_imports=False)

bbox_heads = [
    dict(
        type='ConvFCBBoxHead',
        num_shared_convs=4,
        num_shared_fcs=1,
        in_channels=256,
        conv_out_channels=256,
        fc_out_channels=1024,
        roi_feat_size=7,
        num_classes=80,
        bbox_coder=dict(type='DeltaXYWHBBoxCoder', target_means=[0.0, 0.0, 0.0, 0.0], target_stds=stds),
        reg_class_agnostic=False,
        reg_decoded_bbox=True,  # GIoU needs it
        norm_cfg=dict(type='SyncBN', requires_grad=True),
        loss_cls=dict(type='CrossEntropyLoss', use_sigmoid=False, loss_weight=1.0),
        loss_bbox=dict(type='GIoULoss', loss_weight=10.0),
    )
    for stds in ([0.1, 0.1, 0.2, 0.2], [0.05, 0.05, 0.1, 0.1], [0.033, 0.033, 0.067, 0.067])
]
model = dict(
    # No drop path for T in 12 epochs, as in Swin's repository. T in 36 epochs and S have 0.2, B has 0.3.
    backbone=dict(_delete_=True, type='vitnas.S3', arch='s3-t', out_indices=(0, 1, 2, 3), drop_path_rate=0.0),
    neck=dict(in_channels='auto'),
    roi_head=dict(bbox_head=bbox_heads),
)

# As in mmdet::swin/mask-rcnn_swin-t-p4-w7_fpn_ms-crop-3x_coco.py, originally from DETR.
scales = [(side, 1333) for side in range(480, 801, 32)]
train_pipeline = [
    dict(type='LoadImageFromFile', backend_args=_base_.backend_args),
    dict(type='LoadAnnotations', with_bbox=True, with_mask=True),
    dict(type='RandomFlip', prob=0.5),
    dict(
        type='RandomChoice',
        transforms=[
            [dict(type='RandomChoiceResize', scales=scales, keep_ratio=True)],
            [
                dict(type='RandomChoiceResize', scales=[(400, 1333), (500, 1333), (600, 1333)], keep_ratio=True),
                dict(type='RandomCrop', crop_type='absolute_range', crop_size=(384, 600), allow_negative_crop=True),
                dict(type='RandomChoiceResize', scales=scales, keep_ratio=True),
            ],
        ],
    ),
    dict(type='PackDetInputs'),
]
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))

optim_wrapper = dict(
    constructor='vitnas.LayerDecayOptimWrapperConstructor',  # norms and positions do not decay
    optimizer=dict(_delete_=True, type='AdamW', lr=1e-4, weight_decay=0.05),
)
param_scheduler = [
    dict(type='LinearLR', start_factor=0.001, by_epoch=False, begin=0, end=1000),
    dict(type='MultiStepLR', by_epoch=True, begin=0, end=12, milestones=[8, 11], gamma=0.1),
]
