"""Scenes of handwritten digits for mmdet: 600 to train, 150 to test; ``tools/dataset_converters/make_scenes.py``."""

data_root = 'data/scenes/'
metainfo = dict(classes=('0', '1', '2', '3', '4', '5', '6', '7', '8', '9'))

# Digits are not flipped: a mirrored 2 is not a 2.
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations', with_bbox=True, with_mask=True),
    dict(type='RandomChoiceResize', scales=[(112, 84), (128, 96), (144, 108), (160, 120)], keep_ratio=True),
    dict(type='PackDetInputs'),
]
# Read annotations after the resize: predictions are compared at the size of the file.
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=(128, 96), keep_ratio=True),
    dict(type='LoadAnnotations', with_bbox=True, with_mask=True),
    # A metric without an annotation file reads `instances` from the samples.
    dict(type='PackDetInputs', meta_keys=('img_id', 'img_path', 'ori_shape', 'img_shape', 'scale_factor', 'instances')),
]

train_set = dict(
    type='CocoDataset',
    data_root=data_root,
    metainfo=metainfo,
    ann_file='annotations/instances_train.json',
    data_prefix=dict(img='train/'),
    filter_cfg=dict(filter_empty_gt=True),
)

train_dataloader = dict(
    batch_size=4,
    num_workers=1,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=True),
    batch_sampler=dict(type='AspectRatioBatchSampler'),
    dataset=dict(**train_set, pipeline=train_pipeline),
)
val_dataloader = dict(
    batch_size=16,
    num_workers=1,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        type='CocoDataset',
        data_root=data_root,
        metainfo=metainfo,
        ann_file='annotations/instances_val.json',
        data_prefix=dict(img='val/'),
        test_mode=True,
        pipeline=test_pipeline,
    ),
)
test_dataloader = val_dataloader
val_evaluator = dict(
    type='CocoMetric', ann_file=data_root + 'annotations/instances_val.json', metric=['bbox', 'segm'], format_only=False
)
test_evaluator = val_evaluator

# Searches never see the test scenes: four fifths of the training scenes train a supernet, one fifth ranks candidates.
supernet_dataset = dict(
    type='vitnas.HoldOut', part='train', fraction=0.2, seed=0, dataset=dict(**train_set, pipeline=train_pipeline)
)
holdout_dataloader = dict(
    val_dataloader, dataset=dict(supernet_dataset, part='holdout', dataset=dict(**train_set, pipeline=test_pipeline))
)
holdout_evaluator = dict(type='CocoMetric', metric=['bbox', 'segm'], format_only=False)
