"""Search the micro FocusFormer supernet with its sampler for at most 3, 5 and 7 M MACs; seconds on two cores.

For another supernet: ``--cfg-options load_from=FILE``. For one or several other budgets: ``train_cfg.budgets=5e6``.
"""

_base_ = './focusformer-micro_supernet_40e_digits.py'

train_cfg = dict(
    _delete_=True,
    type='vitnas.SamplerSearchLoop',
    evaluator=dict(type='Accuracy'),
    sampler=_base_.train_cfg.sampler,
    budgets=[3e6, 5e6, 7e6],
    num_candidates=30,
)
train_dataloader = dict(_delete_=True, **_base_.val_dataloader)  # the held-out part of the training set
load_from = 'work_dirs/focusformer-micro_supernet_40e_digits/epoch_40.pth'
