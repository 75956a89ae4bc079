"""Search the micro ViTAS-DeiT superformer of Fashion-MNIST for at most 0.7 M MACs by NSGA-II."""

_base_ = './vitas-deit-micro_supernet_40e_fashion-mnist.py'

train_cfg = dict(
    _delete_=True,
    type='vitnas.NSGA2SearchLoop',
    evaluator=dict(type='Accuracy', topk=(1,)),
    constraint=dict(macs=(None, 7e5)),
    population=20,
    parents=10,
    generations=8,
)
train_dataloader = dict(_delete_=True, **_base_.val_dataloader)  # the held-out part of the training set
load_from = 'work_dirs/vitas-deit-micro_supernet_40e_fashion-mnist/epoch_40.pth'
