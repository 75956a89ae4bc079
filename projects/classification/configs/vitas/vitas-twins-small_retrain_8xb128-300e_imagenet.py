"""Train the result of the search in the Twins-small space alone (App. A.1).

For another network: ``--cfg-options model.backbone.arch=FILE``, or ``twins-svt-s`` for Twins-SVT-S itself. Stochastic
depth is 0.1, 0.2, 0.3 and 0.5 for tiny, small, base and large.
"""

_base_ = [
    '../../../../configs/supernets/vitas.py',
    '../../../../configs/_base_/datasets/imagenet.py',
    '../../../../configs/_base_/schedules/vitas_bs1024_300e.py',
]

arch = 'work_dirs/vitas-twins-small_search_nsga2-3g_imagenet/best_arch.json'
model = dict(
    backbone=dict(space=None, arch=arch, drop_path_rate=0.2),
    train_cfg=dict(augments=[dict(type='Mixup', alpha=0.8), dict(type='CutMix', alpha=1.0)]),
)
train_cfg = dict(_delete_=True, type='EpochBasedTrainLoop', max_epochs=300, val_interval=10)
optim_wrapper = dict(optimizer=dict(weight_decay=0.05), clip_grad=dict(max_norm=5.0))
# The search is over: train on the whole training set, without repeated augmentation. The last epoch counts, so val may
# show the test set.
train_dataloader = dict(
    dataset=dict(_delete_=True, **_base_.train_dataloader.dataset.dataset),
    sampler=dict(_delete_=True, type='DefaultSampler', shuffle=True),
)
val_dataloader = dict(_delete_=True, **_base_.test_dataloader)
find_unused_parameters = False
custom_hooks = []
