"""Train a sampler on any finished supernet; about a minute on one core.

For another supernet: ``--cfg-options load_from=FILE``. A search with the sampler reads the result.
"""

_base_ = './focusformer-micro_supernet_12e_fashion-mnist.py'

train_cfg = dict(
    _delete_=True,
    type='vitnas.SamplerTrainLoop',
    sampler=_base_.train_cfg.sampler,
    max_iters=360,
    evaluator=dict(type='Accuracy'),
    beta=1.0,
    num_archs=8,
    baseline=0.9,
    entropy=0.01,
    optimizer=dict(type='AdamW', lr=5e-3, weight_decay=0.05),
)
train_dataloader = dict(_delete_=True, **dict(_base_.val_dataloader, batch_size=32))  # rewards: the held-out part
load_from = 'work_dirs/focusformer-micro_supernet_12e_fashion-mnist/epoch_12.pth'

default_hooks = dict(checkpoint=dict(by_epoch=False, interval=120, save_optimizer=False), logger=dict(interval=20))
log_processor = dict(by_epoch=False)
