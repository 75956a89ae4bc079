"""Train AutoFormer-S with inherited weights for 30 more epochs.

For another subnet: ``--cfg-options model.backbone.arch=DIR/arch.json load_from=DIR/weights.safetensors``.
"""

_base_ = './autoformer-tiny_finetune_8xb128-30e_imagenet.py'

subnet = 'work_dirs/autoformer-small_search_evolution-23m_imagenet/subnet'
model = dict(backbone=dict(arch=f'{subnet}/arch.json'))
load_from = f'{subnet}/weights.safetensors'
