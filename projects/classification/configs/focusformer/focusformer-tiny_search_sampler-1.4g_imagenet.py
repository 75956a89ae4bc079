"""Search FocusFormer-Ti with at most 1.4 G MACs, using its supernet's sampler.

For another supernet: ``--cfg-options load_from=FILE``.
For one or several other budgets: ``train_cfg.budgets=1.2e9,1.4e9,1.6e9``.
"""

_base_ = './focusformer-tiny_supernet_8xb128-500e_imagenet.py'

train_cfg = dict(
    _delete_=True,
    type='vitnas.SamplerSearchLoop',
    evaluator=dict(type='Accuracy'),
    sampler=_base_.train_cfg.sampler,
    budgets=1.4e9,
    num_candidates=30,
    keep_gb=16,  # per process: the 100,000 held-out images take 15 GB when decoded
)
train_dataloader = dict(_delete_=True, **_base_.val_dataloader)  # the held-out part of the training set
load_from = 'work_dirs/focusformer-tiny_supernet_8xb128-500e_imagenet/epoch_500.pth'
