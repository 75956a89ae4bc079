"""Train the searched micro S3 alone on the digits, all 1,442 training images."""

_base_ = './s3-micro_supernet_12e_digits.py'

model = dict(backbone=dict(space=None, arch='work_dirs/s3-micro_space_12e_digits/step_3/search/best_arch.json'))
train_cfg = dict(_delete_=True, type='EpochBasedTrainLoop', max_epochs=20, val_interval=20)
# The search is over: train on the whole training set. The last epoch counts, so val may show the test set.
train_dataloader = dict(dataset=dict(_delete_=True, **_base_.train_dataloader.dataset.dataset))
val_dataloader = dict(_delete_=True, **_base_.test_dataloader)
param_scheduler = [
    dict(type='LinearLR', start_factor=0.01, by_epoch=True, end=2, convert_to_iter_based=True),
    dict(type='CosineAnnealingLR', eta_min=1e-5, by_epoch=True, begin=2, end=20, convert_to_iter_based=True),
]
find_unused_parameters = False
