"""Search the micro NASViT supernet of Fashion-MNIST for the front up to 3 M MACs; a few minutes on one core."""

_base_ = './nasvit-micro_supernet_6e_fashion-mnist.py'

train_cfg = dict(
    _delete_=True,
    type='vitnas.PredictorSearchLoop',
    evaluator=dict(type='Accuracy', topk=(1,)),
    constraint=dict(macs=(None, 3e6)),
    num_samples=64,
    num_final=16,
    parents=32,
    mutations=32,
    crossovers=32,
    rounds=10,
    recalibrate=2,
)
train_dataloader = dict(_delete_=True, **_base_.val_dataloader)  # the held-out part of the training set
load_from = 'work_dirs/nasvit-micro_supernet_6e_fashion-mnist/epoch_6.pth'
