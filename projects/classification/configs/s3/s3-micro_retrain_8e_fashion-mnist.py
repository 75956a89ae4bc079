"""Train the search result of the evolved space alone, on the same images as its supernet."""

_base_ = './s3-micro_supernet_8e_fashion-mnist.py'

model = dict(
    backbone=dict(space=None, arch='work_dirs/s3-micro_space_8e_fashion-mnist/step_3/search/best_arch.json'),
)
train_cfg = dict(_delete_=True, type='EpochBasedTrainLoop', max_epochs=8, val_interval=1000)
# A study reads the last validation. For a network trained alone, this must use the test images.
val_dataloader = dict(_delete_=True, **_base_.test_dataloader)
find_unused_parameters = False
