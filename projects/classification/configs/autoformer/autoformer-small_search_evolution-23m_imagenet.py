"""Search AutoFormer-S with 18 to 23 M parameters.

For another supernet: ``--cfg-options load_from=FILE``.
"""

_base_ = './autoformer-tiny_search_evolution-6m_imagenet.py'

model = dict(backbone=dict(space='autoformer-small'))
train_cfg = dict(constraint=dict(params=(18e6, 23e6)))
load_from = 'work_dirs/autoformer-small_supernet_8xb128-500e_imagenet/epoch_500.pth'
