"""Scenes of handwritten digits for mmseg: 600 to train, 150 to test; ``tools/dataset_converters/make_scenes.py``."""

data_root = 'data/scenes/'
metainfo = dict(classes=('ground', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9'))
crop_size = (96, 128)  # also the ``size`` of a model's data_preprocessor, which pads smaller images to it
# For ``init_cfg`` of heads. With mmseg's 0.01, a short training finds strokes, but not which digit they are.
classifier_init = dict(type='Normal', std=0.1, override=dict(name='conv_seg'))

# Digits are not flipped: a mirrored 2 is not a 2.
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations', reduce_zero_label=True),
    dict(type='RandomChoiceResize', scales=[(112, 84), (128, 96), (144, 108), (160, 120)], keep_ratio=True),
    dict(type='RandomCrop', crop_size=crop_size),
    dict(type='PackSegInputs'),
]
# Read label maps after the resize: predictions are compared at the size of the file.
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=(128, 96), keep_ratio=True),
    dict(type='LoadAnnotations', reduce_zero_label=True),
    dict(type='PackSegInputs'),
]

# As in ADE20K, label 0 is no class: here, the uncertain edge of strokes.
scenes = dict(
    type='BaseSegDataset',
    data_root=data_root,
    metainfo=metainfo,
    img_suffix='.png',
    seg_map_suffix='.png',
    reduce_zero_label=True,
)
train_set = dict(**scenes, data_prefix=dict(img_path='train', seg_map_path='labels/train'))

train_dataloader = dict(
    batch_size=4,
    num_workers=1,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=True),
    dataset=dict(**train_set, pipeline=train_pipeline),
)
val_dataloader = dict(
    batch_size=16,
    num_workers=1,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        **scenes,
        data_prefix=dict(img_path='val', seg_map_path='labels/val'),
        test_mode=True,
        pipeline=test_pipeline,
    ),
)
test_dataloader = val_dataloader
val_evaluator = dict(type='IoUMetric', iou_metrics=['mIoU'])
test_evaluator = val_evaluator

# Searches never see the test scenes: four fifths of the training scenes train a supernet, one fifth ranks candidates.
supernet_dataset = dict(
    type='vitnas.HoldOut', part='train', fraction=0.2, seed=0, dataset=dict(**train_set, pipeline=train_pipeline)
)
holdout_dataloader = dict(
    val_dataloader, dataset=dict(supernet_dataset, part='holdout', dataset=dict(**train_set, pipeline=test_pipeline))
)
holdout_evaluator = val_evaluator
