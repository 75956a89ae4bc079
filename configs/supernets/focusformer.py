"""FocusFormer's supernet as a classifier: AutoFormer with conditional positions, trained on a learned sampler's draws.

Configs for a model size set ``model.backbone.space``. Configs for a dataset add the sampler's training
(``vitnas.SamplerTrainHook``) and growing image sizes (``vitnas.ProgressiveLearningHook``).
"""

_base_ = './autoformer.py'

model = dict(backbone=dict(position='conditional'))
train_cfg = dict(
    # MACs of the whole network at 224 × 224, in steps of 200 M (the best setting of the paper's Tab. 5).
    sampler=dict(_delete_=True, type='vitnas.FocusSampler', input_size=224, num_classes=1000, step=200e6),
)
