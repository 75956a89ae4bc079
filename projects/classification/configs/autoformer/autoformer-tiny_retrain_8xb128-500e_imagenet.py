"""Train the published AutoFormer-T alone.

For another network: ``--cfg-options model.backbone.arch=FILE``, or a zoo name.
"""

_base_ = './autoformer-tiny_supernet_8xb128-500e_imagenet.py'

model = dict(backbone=dict(space=None, arch='autoformer-tiny'))
train_cfg = dict(_delete_=True, type='EpochBasedTrainLoop', max_epochs=500, val_interval=10)
# The search is over: train on the whole training set. The last epoch counts, so val may show the test set.
train_dataloader = dict(dataset=dict(_delete_=True, **_base_.train_dataloader.dataset.dataset))
val_dataloader = dict(_delete_=True, **_base_.test_dataloader)
find_unused_parameters = False
custom_hooks = []
