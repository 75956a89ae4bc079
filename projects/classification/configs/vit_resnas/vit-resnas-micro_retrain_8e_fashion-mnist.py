"""Train the search result alone, on the same images as its supernet."""

_base_ = './vit-resnas-micro_supernet_8e_fashion-mnist.py'

model = dict(
    backbone=dict(space=None, arch='work_dirs/vit-resnas-micro_search_evolution-10.8m_fashion-mnist/best_arch.json'),
)
train_cfg = dict(_delete_=True, type='EpochBasedTrainLoop', max_epochs=8, val_interval=1000)
# A study reads the last validation. For a network trained alone, this must use the test images.
val_dataloader = dict(_delete_=True, **_base_.test_dataloader)
find_unused_parameters = False
