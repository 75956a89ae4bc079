"""Search FocusFormer-Ti with at most 1.7 G MACs (the paper's Tab. 2) on CIFAR-100, using its supernet's sampler.

For another supernet: ``--cfg-options load_from=FILE``.
For one or several other budgets: ``train_cfg.budgets=1.4e9,1.7e9``.
"""

_base_ = './focusformer-tiny_supernet_1xb128-500e_cifar100.py'

train_cfg = dict(
    _delete_=True,
    type='vitnas.SamplerSearchLoop',
    evaluator=dict(type='Accuracy'),
    sampler=_base_.train_cfg.sampler,
    budgets=1.7e9,
    num_candidates=30,
)
train_dataloader = dict(_delete_=True, **_base_.val_dataloader)  # the held-out part of the training set
load_from = 'work_dirs/focusformer-tiny_supernet_1xb128-500e_cifar100/epoch_500.pth'
