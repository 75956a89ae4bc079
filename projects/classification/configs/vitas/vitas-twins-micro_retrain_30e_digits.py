"""Train what was found by the search alone on all training digits; tested on the others."""

_base_ = './vitas-twins-micro_supernet_30e_digits.py'

arch = 'work_dirs/vitas-twins-micro_search_nsga2-2m_digits/best_arch.json'
model = dict(backbone=dict(space=None, arch=arch))
# Nothing is compared any more, so the held-out images are trained on, too.
train_dataloader = dict(
    dataset=dict(_delete_=True, type='vitnas.Digits', split='train', pipeline=_base_.train_pipeline)
)
val_dataloader = dict(_delete_=True, **_base_.test_dataloader)
train_cfg = dict(_delete_=True, type='EpochBasedTrainLoop', max_epochs=30, val_interval=10)
find_unused_parameters = False
custom_hooks = []
