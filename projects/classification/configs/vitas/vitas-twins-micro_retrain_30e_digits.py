"""Train the search result alone on all training digits. Test on the test digits."""

_base_ = './vitas-twins-micro_supernet_30e_digits.py'

arch = 'work_dirs/vitas-twins-micro_search_nsga2-2m_digits/best_arch.json'
model = dict(backbone=dict(space=None, arch=arch))
# No comparison follows, so train on the held-out images too.
train_dataloader = dict(
    dataset=dict(_delete_=True, type='vitnas.Digits', split='train', pipeline=_base_.train_pipeline)
)
val_dataloader = dict(_delete_=True, **_base_.test_dataloader)
train_cfg = dict(_delete_=True, type='EpochBasedTrainLoop', max_epochs=30, val_interval=10)
find_unused_parameters = False
custom_hooks = []
