"""Train what was found by the search alone, on the images that its superformer was trained on."""

_base_ = './vitas-deit-micro_supernet_8e_fashion-mnist.py'

arch = 'work_dirs/vitas-deit-micro_search_nsga2-2m_fashion-mnist/best_arch.json'
model = dict(backbone=dict(space=None, arch=arch))
train_cfg = dict(_delete_=True, type='EpochBasedTrainLoop', max_epochs=8, val_interval=1000)
# A study reads the last validation, and that of a network trained alone is to be on the test images.
val_dataloader = dict(_delete_=True, **_base_.test_dataloader)
find_unused_parameters = False
