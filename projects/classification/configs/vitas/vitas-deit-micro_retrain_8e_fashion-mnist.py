"""Train the search result alone, on the same images as its superformer."""

_base_ = './vitas-deit-micro_supernet_40e_fashion-mnist.py'

arch = 'work_dirs/vitas-deit-micro_search_nsga2-0.7m_fashion-mnist/best_arch.json'
model = dict(backbone=dict(space=None, arch=arch))
train_cfg = dict(_delete_=True, type='EpochBasedTrainLoop', max_epochs=8, val_interval=1000)
param_scheduler = [
    dict(type='LinearLR', start_factor=0.01, by_epoch=True, end=1, convert_to_iter_based=True),
    dict(type='CosineAnnealingLR', eta_min=0.0, by_epoch=True, begin=1, end=8, convert_to_iter_based=True),
]
# A study reads the last validation. For a network trained alone, this must use the test images.
val_dataloader = dict(_delete_=True, **_base_.test_dataloader)
find_unused_parameters = False
