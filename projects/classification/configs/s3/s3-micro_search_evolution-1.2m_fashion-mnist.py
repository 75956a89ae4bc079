"""Search the micro S3 in the initial space. For another space, set ``model.backbone.space`` and ``load_from``."""

_base_ = './s3-micro_supernet_8e_fashion-mnist.py'

train_cfg = dict(
    _delete_=True,
    type='vitnas.EvolutionSearchLoop',
    evaluator=dict(type='Accuracy'),
    constraint=dict(macs=(None, 1.2e6)),
    population=20,
    parents=5,
    generations=6,
    mutations=10,
    crossovers=10,
    mutation_prob=dict(depth=0.2, stage=0.2, block=0.4),
)
train_dataloader = dict(_delete_=True, **_base_.val_dataloader)  # the held-out part of the training set
load_from = 'work_dirs/s3-micro_supernet_8e_fashion-mnist/epoch_8.pth'
