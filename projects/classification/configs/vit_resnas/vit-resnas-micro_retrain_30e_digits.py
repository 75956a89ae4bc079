"""Train the searched micro ViT-ResNAS alone on the digits, all 1,442 training images, with token labeling."""

_base_ = './vit-resnas-micro_supernet_30e_digits.py'

model = dict(backbone=dict(space=None, arch='work_dirs/vit-resnas-micro_search_evolution-10.8m_digits/best_arch.json'))
train_cfg = dict(_delete_=True, type='EpochBasedTrainLoop', max_epochs=30, val_interval=10)
# The search is over: train on the whole training set. The last epoch counts, so val may show the test set.
train_dataloader = dict(dataset=dict(_delete_=True, **_base_.train_dataloader.dataset.dataset))
val_dataloader = dict(_delete_=True, **_base_.test_dataloader)
find_unused_parameters = False
custom_hooks = []
