"""Search the micro ViTAS-Twins superformer of the digits for at most 2 M MACs by NSGA-II."""

_base_ = './vitas-twins-micro_supernet_30e_digits.py'

train_cfg = dict(
    _delete_=True,
    type='vitnas.NSGA2SearchLoop',
    evaluator=dict(type='Accuracy', topk=(1,)),
    constraint=dict(macs=(None, 2e6)),
    population=20,
    parents=10,
    generations=8,
)
train_dataloader = dict(_delete_=True, **_base_.val_dataloader)  # the held-out part of the training set
load_from = 'work_dirs/vitas-twins-micro_supernet_30e_digits/epoch_30.pth'
