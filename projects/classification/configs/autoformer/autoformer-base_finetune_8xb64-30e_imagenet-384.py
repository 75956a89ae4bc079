"""Train AutoFormer-B with inherited weights at 384 × 384.

For another subnet: ``--cfg-options model.backbone.arch=DIR/arch.json load_from=DIR/weights.safetensors``.
"""

_base_ = './autoformer-tiny_finetune_8xb64-30e_imagenet-384.py'

subnet = 'work_dirs/autoformer-base_search_evolution-54m_imagenet/subnet'
model = dict(backbone=dict(arch=f'{subnet}/arch.json'))
load_from = f'{subnet}/weights.safetensors'
