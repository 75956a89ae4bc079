"""Search a micro S3 for the scenes of digits: at most 7 M MACs at 56 × 56, about 26 M at 96 × 128."""

_base_ = './s3-micro_supernet_120e_drawn-digits.py'

train_cfg = dict(
    _delete_=True,
    type='vitnas.EvolutionSearchLoop',
    evaluator=dict(type='Accuracy'),
    constraint=dict(macs=(None, 7e6)),
    population=20,
    parents=5,
    generations=5,
    mutations=10,
    crossovers=10,
    mutation_prob=dict(depth=0.2, stage=0.2, block=0.4),
)
train_dataloader = dict(_delete_=True, **_base_.val_dataloader)  # the held-out part of the training set
load_from = 'work_dirs/s3-micro_supernet_120e_drawn-digits/epoch_120.pth'
