"""Train a subnet with inherited weights for 10 more epochs on all training digits.

For another subnet: ``--cfg-options model.backbone.arch=DIR/arch.json load_from=DIR/weights.safetensors``.

DIR is the output of ``tools/extract_subnet.py … --out DIR``.
"""

_base_ = './autoformer-micro_retrain_20e_digits.py'

subnet = 'work_dirs/autoformer-micro_search_evolution-2m_digits/subnet'
model = dict(backbone=dict(arch=f'{subnet}/arch.json'))
load_from = f'{subnet}/weights.safetensors'

train_cfg = dict(max_epochs=10)
optim_wrapper = dict(optimizer=dict(lr=3e-4))
param_scheduler = [
    dict(type='LinearLR', start_factor=0.01, by_epoch=True, end=1, convert_to_iter_based=True),
    dict(type='CosineAnnealingLR', eta_min=1e-5, by_epoch=True, begin=1, end=10, convert_to_iter_based=True),
]
