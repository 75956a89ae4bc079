"""Search the micro ViT-ResNAS supernet on the digits for at most 10.8 M MACs, of which the stem takes 8.6 M."""

_base_ = './vit-resnas-micro_supernet_30e_digits.py'

train_cfg = dict(
    _delete_=True,
    type='vitnas.EvolutionSearchLoop',
    evaluator=dict(type='Accuracy', topk=(1,)),
    constraint=dict(macs=(None, 10.8e6)),
    initial=30,
    population=20,
    parents=10,
    generations=4,
    mutations=10,
    crossovers=10,
    mutation_prob=0.3,
)
train_dataloader = dict(_delete_=True, **_base_.val_dataloader)  # the held-out part of the training set
load_from = 'work_dirs/vit-resnas-micro_supernet_30e_digits/epoch_30.pth'
