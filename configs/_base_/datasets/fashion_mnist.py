"""Fashion-MNIST (Xiao et al., 2017) with its own split: 55,000 images for training, 5,000 held out, 10,000 for testing.

``python tools/dataset_converters/fashion_mnist.py`` unpacks it. To use fewer images, set ``indices`` of the dataset
inside both parts, e.g. ``train_dataloader.dataset.dataset.indices=6000`` for the first 6,000 images, including
held-out ones.
"""

# Images are gray, 28 × 28. The three means widen them to the three channels of a backbone after the pipeline, so the
# pipeline handles a third of the data and nothing is resized.
data_preprocessor = dict(num_classes=10, mean=[72.9] * 3, std=[90.0] * 3)

train_pipeline = [
    dict(type='RandomFlip', prob=0.5, direction='horizontal'),
    dict(type='PackInputs'),
]
test_pipeline = [dict(type='PackInputs')]

data_root = 'data/fashion-mnist'
per_class = 500  # held out

train_dataloader = dict(
    batch_size=64,
    num_workers=0,
    dataset=dict(
        type='vitnas.HoldOut',
        part='train',
        per_class=per_class,
        dataset=dict(type='FashionMNIST', data_root=data_root, download=False, pipeline=train_pipeline),
    ),
    sampler=dict(type='DefaultSampler', shuffle=True),
    drop_last=True,
)
# The held-out part of the training set validates a supernet and compares the candidates of a search.
holdout_dataloader = dict(
    batch_size=500,
    num_workers=0,
    dataset=dict(
        type='vitnas.HoldOut',
        part='holdout',
        per_class=per_class,
        dataset=dict(type='FashionMNIST', data_root=data_root, download=False, pipeline=test_pipeline),
    ),
    sampler=dict(type='DefaultSampler', shuffle=False),
)
val_dataloader = holdout_dataloader
val_evaluator = dict(type='Accuracy', topk=(1,))
test_dataloader = dict(
    batch_size=500,
    num_workers=0,
    dataset=dict(
        type='FashionMNIST',
        data_root=data_root,
        split='test',
        test_mode=True,  # this, not split, is what makes mmpretrain read the test images
        download=False,
        pipeline=test_pipeline,
    ),
    sampler=dict(type='DefaultSampler', shuffle=False),
)
test_evaluator = val_evaluator
val_cfg = dict()
test_cfg = dict()
