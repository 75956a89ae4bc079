"""Search ViT-ResNAS-Tiny: at most the MACs of ViT-Res-Tiny, 3,350 evaluations on 25,000 held-out images.

The published code also requires at least 0.975 of them: ``--cfg-options train_cfg.constraint.macs=1.7495e9,1.7944e9``.
"""

_base_ = './vit-resnas-tiny_supernet_8xb128-120e_imagenet.py'

train_cfg = dict(
    _delete_=True,
    type='vitnas.EvolutionSearchLoop',
    evaluator=dict(type='Accuracy'),
    constraint=dict(macs=(None, 1.7944e9)),
    initial=500,
    population=150,
    parents=75,
    generations=20,
    mutations=75,
    crossovers=75,
    mutation_prob=0.3,
    keep_gb=4,  # per process: the held-out images take 3.8 GB when decoded
)
train_dataloader = dict(_delete_=True, **_base_.val_dataloader)  # the held-out part of the training set
load_from = 'work_dirs/vit-resnas-tiny_supernet_8xb128-120e_imagenet/epoch_120.pth'
