"""Search FocusFormer-Ti of at most 1.4 G MACs by the sampler of its supernet; another supernet:

``--cfg-options load_from=FILE``. Other budgets, one or several: ``train_cfg.budgets=1.2e9,1.4e9,1.6e9``.
"""

_base_ = './focusformer-tiny_supernet_8xb128-500e_imagenet.py'

train_cfg = dict(
    _delete_=True,
    type='vitnas.SamplerSearchLoop',
    evaluator=dict(type='Accuracy'),
    sampler=_base_.train_cfg.sampler,
    budgets=1.4e9,
    num_candidates=30,
    keep_gb=16,  # a process: the 100,000 held-out images are 15 GB when they are decoded
)
train_dataloader = dict(_delete_=True, **_base_.val_dataloader)  # the held-out part of the training set
load_from = 'work_dirs/focusformer-tiny_supernet_8xb128-500e_imagenet/epoch_500.pth'
