"""The embedded digits: 1,797 real 8 × 8 images without a download; 1,142 for training, 300 held out, 355 for test."""

data_preprocessor = dict(num_classes=10, mean=[77.6] * 3, std=[95.9] * 3)

train_pipeline = [
    dict(type='Resize', scale=32, interpolation='bicubic'),
    dict(type='RandomCrop', crop_size=32, padding=2),
    dict(type='PackInputs'),
]
test_pipeline = [dict(type='Resize', scale=32, interpolation='bicubic'), dict(type='PackInputs')]

train_dataloader = dict(
    batch_size=64,
    num_workers=0,
    dataset=dict(
        type='vitnas.HoldOut',
        part='train',
        per_class=30,
        dataset=dict(type='vitnas.Digits', split='train', pipeline=train_pipeline),
    ),
    sampler=dict(type='DefaultSampler', shuffle=True),
    drop_last=True,
)
# The held-out part of the training set validates a supernet and compares the candidates of a search.
val_dataloader = dict(
    batch_size=150,
    num_workers=0,
    dataset=dict(
        type='vitnas.HoldOut',
        part='holdout',
        per_class=30,
        dataset=dict(type='vitnas.Digits', split='train', pipeline=test_pipeline),
    ),
    sampler=dict(type='DefaultSampler', shuffle=False),
)
val_evaluator = dict(type='Accuracy', topk=(1,))
test_dataloader = dict(
    batch_size=150,
    num_workers=0,
    dataset=dict(type='vitnas.Digits', split='test', pipeline=test_pipeline),
    sampler=dict(type='DefaultSampler', shuffle=False),
)
test_evaluator = val_evaluator
val_cfg = dict()
test_cfg = dict()
