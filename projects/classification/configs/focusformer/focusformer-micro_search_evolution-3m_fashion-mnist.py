"""Search the micro FocusFormer supernet on Fashion-MNIST by evolution for at most 3 M MACs, as a comparison.

For another supernet: ``--cfg-options load_from=FILE``. For another limit: ``train_cfg.constraint.macs=None,2e6``.
"""

_base_ = './focusformer-micro_supernet_12e_fashion-mnist.py'

train_cfg = dict(
    _delete_=True,
    type='vitnas.EvolutionSearchLoop',
    evaluator=dict(type='Accuracy', topk=(1,)),
    constraint=dict(macs=(None, 3e6)),
    population=50,
    parents=10,
    generations=6,
    mutations=25,
    crossovers=25,
)
train_dataloader = dict(_delete_=True, **_base_.val_dataloader)  # the held-out part of the training set
load_from = 'work_dirs/focusformer-micro_supernet_12e_fashion-mnist/epoch_12.pth'
