"""FocusFormer's supernet as a classifier: AutoFormer with conditional positions, trained on a learned sampler's draws.

Configs for a model size set ``model.backbone.space``. Configs for a dataset add the sampler's training
(``vitnas.SamplerTrainHook``) and growing image sizes (``vitnas.ProgressiveLearningHook``).
"""

_base_ = './autoformer.py'

model = dict(backbone=dict(position='conditional'))
train_cfg = dict(
    # Budgets in steps of 200 M MACs (the best of the paper's Tab. 5).
    sampler=dict(_delete_=True, type='vitnas.FocusSampler', step=200e6),
)
