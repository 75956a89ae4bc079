"""Train AutoFormer-T with inherited weights for 30 more epochs.

For another subnet: ``--cfg-options model.backbone.arch=DIR/arch.json load_from=DIR/weights.safetensors``.

DIR is the output of ``tools/extract_subnet.py … --out DIR``. The learning rate is our choice.
"""

_base_ = './autoformer-tiny_retrain_8xb128-500e_imagenet.py'

subnet = 'work_dirs/autoformer-tiny_search_evolution-6m_imagenet/subnet'
model = dict(backbone=dict(arch=f'{subnet}/arch.json'))
load_from = f'{subnet}/weights.safetensors'

train_cfg = dict(max_epochs=30, val_interval=5)
optim_wrapper = dict(optimizer=dict(lr=5e-5))
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, by_epoch=True, end=1, convert_to_iter_based=True),
    dict(type='CosineAnnealingLR', eta_min=1e-6, by_epoch=True, begin=1, end=30),
]
