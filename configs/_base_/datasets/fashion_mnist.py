"""Fashion-MNIST (Xiao et al., 2017) with its own split: 55,000 images to train on, 5,000 held out, 10,000 to test.

``python tools/dataset_converters/fashion_mnist.py`` unpacks it. A study on fewer images sets ``indices`` of
the dataset inside both parts, e.g. ``train_dataloader.dataset.dataset.indices=6000``: the first 6,000, held-out
ones included.
"""

# Images are 28 × 28 and grey. The three means widen them to the three channels that a backbone expects, after
# the pipeline, so that a sample costs a third and nothing is resized.
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
# The held-out part of the training set: what a supernet is watched on, and what a search compares candidates on.
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
