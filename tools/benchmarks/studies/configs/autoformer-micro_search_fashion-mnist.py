"""Search of the micro AutoFormer supernet on the 2,000 held-out images, under half of the largest one's MACs."""

_base_ = './autoformer-micro_supernet_fashion-mnist.py'

train_cfg = dict(
    _delete_=True,
    type='vitnas.EvolutionSearchLoop',
    evaluator=dict(type='Accuracy', topk=(1,)),
    constraint=dict(macs=(None, 2.8e6)),
    input_size=28,
    num_classes=10,
    population=20,
    parents=5,
    generations=4,
    mutations=10,
    crossovers=10,
)
train_dataloader = {{_base_.holdout_dataloader}}
