"""Search ViTAS-DeiT-A with at most 1.4 G MACs by NSGA-II: 40 generations of 50 (App. A.3).

For another supernet: ``--cfg-options load_from=FILE``. For another limit: ``train_cfg.constraint.macs=None,1.0e9``.
"""

_base_ = './vitas-deit-tiny_supernet_8xb128-300e_imagenet.py'

train_cfg = dict(
    _delete_=True,
    type='vitnas.NSGA2SearchLoop',
    evaluator=dict(type='Accuracy'),
    constraint=dict(macs=(None, 1.4e9)),
    population=50,
    parents=20,
    generations=40,
    keep_gb=8,  # per process: the 50,000 held-out images take 8 GB when decoded
)
train_dataloader = dict(_delete_=True, **_base_.val_dataloader)  # the held-out part of the training set
load_from = 'work_dirs/vitas-deit-tiny_supernet_8xb128-300e_imagenet/epoch_300.pth'
