"""Search the micro AutoFormer supernet for at most 2 M MACs; seconds on two cores.

For another supernet: ``--cfg-options load_from=FILE``. For another limit: ``train_cfg.constraint.macs=None,3e6``.
"""

_base_ = './autoformer-micro_supernet_40e_digits.py'

train_cfg = dict(
    _delete_=True,
    type='vitnas.EvolutionSearchLoop',
    evaluator=dict(type='Accuracy'),
    constraint=dict(macs=(None, 2e6)),
    population=30,
    parents=10,
    generations=8,
    mutations=15,
    crossovers=15,
    mutation_prob=dict(depth=0.4, stage=0.4, block=0.2),
)
train_dataloader = dict(_delete_=True, **_base_.val_dataloader)  # the held-out part of the training set
load_from = 'work_dirs/autoformer-micro_supernet_40e_digits/epoch_40.pth'
