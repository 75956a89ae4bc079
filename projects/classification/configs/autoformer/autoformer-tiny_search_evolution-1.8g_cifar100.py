"""Search AutoFormer-T with at most 1.8 G MACs on CIFAR-100.

For another supernet: ``--cfg-options load_from=FILE``.

The limit is the size of the network that evolution found in FocusFormer's Tab. 2.
"""

_base_ = './autoformer-tiny_supernet_1xb128-500e_cifar100.py'

train_cfg = dict(
    _delete_=True,
    type='vitnas.EvolutionSearchLoop',
    evaluator=dict(type='Accuracy'),
    constraint=dict(macs=(None, 1.8e9)),
    population=50,
    parents=10,
    generations=20,
    mutations=25,
    crossovers=25,
    mutation_prob=dict(depth=0.4, stage=0.4, block=0.2),
)
train_dataloader = dict(_delete_=True, **_base_.val_dataloader)  # the held-out part of the training set
load_from = 'work_dirs/autoformer-tiny_supernet_1xb128-500e_cifar100/epoch_500.pth'
