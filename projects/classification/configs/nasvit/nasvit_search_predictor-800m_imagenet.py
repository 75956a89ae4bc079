"""Search NASViT's front of accuracy and MACs up to 800 M: 1,024 evaluations train a forest, which predicts 10,240.

The winners inherit the supernet's weights without retraining: ``tools/extract_subnet.py --recalibrate 16``.
"""

_base_ = './nasvit_supernet_8xb64-360e_imagenet.py'

train_cfg = dict(
    _delete_=True,
    type='vitnas.PredictorSearchLoop',
    evaluator=dict(type='Accuracy'),
    constraint=dict(macs=(None, 800e6)),
    num_samples=1024,
    parents=128,
    mutations=128,
    crossovers=128,
    rounds=40,
    recalibrate=16,
)
train_dataloader = dict(_delete_=True, **_base_.val_dataloader)  # the held-out part of the training set
load_from = 'work_dirs/nasvit_supernet_8xb64-360e_imagenet/epoch_360.pth'
