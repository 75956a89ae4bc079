"""Train NASViT-A1 (the paper's Tab. 13) alone.

For another network: ``--cfg-options model.backbone.arch=FILE``, or a zoo name.
"""

_base_ = [
    '../../../../configs/supernets/nasvit.py',
    '../../../../configs/_base_/datasets/imagenet_weak.py',
    '../../../../configs/_base_/schedules/nasvit_bs512_360e.py',
]

model = dict(backbone=dict(space=None, arch='nasvit-a1'))
train_cfg = dict(_delete_=True, type='EpochBasedTrainLoop', max_epochs=360, val_interval=10)
# Train on the whole training set. The last epoch counts, so val may show the test set.
train_dataloader = dict(dataset=dict(_delete_=True, **_base_.train_dataloader.dataset.dataset))
val_dataloader = dict(_delete_=True, **_base_.test_dataloader)
find_unused_parameters = False
