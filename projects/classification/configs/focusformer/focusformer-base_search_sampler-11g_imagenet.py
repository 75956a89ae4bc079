"""Search FocusFormer-B with at most 11 G MACs, using its supernet's sampler. See FocusFormer-Ti for options."""

_base_ = './focusformer-tiny_search_sampler-1.4g_imagenet.py'

model = dict(backbone=dict(space='autoformer-base'))
train_cfg = dict(budgets=11e9)
load_from = 'work_dirs/focusformer-base_supernet_8xb128-500e_imagenet/epoch_500.pth'
