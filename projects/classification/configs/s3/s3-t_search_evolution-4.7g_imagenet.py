"""Search S3-T with at most 4.7 G MACs in the evolved space.

For another supernet: ``--cfg-options load_from=FILE``.
"""

_base_ = './s3-t_supernet_8xb128-300e_imagenet.py'

train_cfg = dict(
    _delete_=True,
    type='vitnas.EvolutionSearchLoop',
    evaluator=dict(type='Accuracy'),
    constraint=dict(macs=(None, 4.7e9)),
    population=50,
    parents=10,
    generations=20,
    mutations=25,
    crossovers=25,
    # From the paper: depth and width 0.2, choices of a block 0.4 (AutoFormer's code swaps these).
    mutation_prob=dict(depth=0.2, stage=0.2, block=0.4),
    keep_gb=16,  # per process: the 100,000 held-out images take 15 GB when decoded
)
train_dataloader = dict(_delete_=True, **_base_.val_dataloader)  # the held-out part of the training set
load_from = 'work_dirs/s3-t_supernet_8xb128-300e_imagenet/epoch_300.pth'
