"""Search AutoFormer-T with 5 to 6 M parameters.

For another supernet: ``--cfg-options load_from=FILE``.

For another limit: ``--cfg-options train_cfg.constraint.params=5e6,7e6``. The published code has only the limit of S, 18
to 23 M. The limits of T and B are the sizes of the published networks, rounded up.
"""

_base_ = './autoformer-tiny_supernet_8xb128-500e_imagenet.py'

train_cfg = dict(
    _delete_=True,
    type='vitnas.EvolutionSearchLoop',
    evaluator=dict(type='Accuracy'),
    constraint=dict(params=(5e6, 6e6)),
    population=50,
    parents=10,
    generations=20,
    mutations=25,
    crossovers=25,
    # From the published code: depth and width 0.4, heads and ratio of a block 0.2 (S3's paper swaps these).
    mutation_prob=dict(depth=0.4, stage=0.4, block=0.2),
    keep_gb=16,  # per process: the 100,000 held-out images take 15 GB when decoded
)
train_dataloader = dict(_delete_=True, **_base_.val_dataloader)  # the held-out part of the training set
load_from = 'work_dirs/autoformer-tiny_supernet_8xb128-500e_imagenet/epoch_500.pth'
