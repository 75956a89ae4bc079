"""Search the micro AutoFormer supernet on the 2,000 held-out images, with at most half of the largest MACs."""

_base_ = './autoformer-micro_supernet_8e_fashion-mnist.py'

train_cfg = dict(
    _delete_=True,
    type='vitnas.EvolutionSearchLoop',
    evaluator=dict(type='Accuracy', topk=(1,)),
    constraint=dict(macs=(None, 2.8e6)),
    population=20,
    parents=5,
    generations=4,
    mutations=10,
    crossovers=10,
)
train_dataloader = dict(_delete_=True, **_base_.holdout_dataloader)
load_from = 'work_dirs/autoformer-micro_supernet_8e_fashion-mnist/epoch_8.pth'
