"""Search AutoFormer-B with 42 to 54 M parameters.

For another supernet: ``--cfg-options load_from=FILE``.
"""

_base_ = './autoformer-tiny_search_evolution-6m_imagenet.py'

model = dict(backbone=dict(space='autoformer-base'))
train_cfg = dict(constraint=dict(params=(42e6, 54e6)))
load_from = 'work_dirs/autoformer-base_supernet_8xb128-500e_imagenet/epoch_500.pth'
