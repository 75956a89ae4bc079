"""Search the micro FocusFormer supernet on Fashion-MNIST with its sampler for at most 2, 3 and 4.5 M MACs.

For another supernet: ``--cfg-options load_from=FILE``. For one or several other budgets: ``train_cfg.budgets=3e6``.
"""

_base_ = './focusformer-micro_supernet_12e_fashion-mnist.py'

train_cfg = dict(
    _delete_=True,
    type='vitnas.SamplerSearchLoop',
    evaluator=dict(type='Accuracy', topk=(1,)),
    sampler=_base_.train_cfg.sampler,
    budgets=[2e6, 3e6, 4.5e6],
    num_candidates=30,
)
train_dataloader = dict(_delete_=True, **_base_.val_dataloader)  # the held-out part of the training set
load_from = 'work_dirs/focusformer-micro_supernet_12e_fashion-mnist/epoch_12.pth'
