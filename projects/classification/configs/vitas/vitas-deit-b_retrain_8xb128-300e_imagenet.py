"""Train ViTAS-DeiT-B alone (App. A.1).

For another network: ``--cfg-options model.backbone.arch=FILE``, or a zoo name.

We treat the paper's learning rate of 0.05 as a typo: the paper says that it follows DeiT, which has 1e-3 for this
batch.
"""

_base_ = './vitas-twins-small_retrain_8xb128-300e_imagenet.py'

model = dict(
    backbone=dict(
        _delete_=True, type='vitnas.ViTASDeiT', arch='vitas-deit-b', out_type='cls_token', drop_path_rate=0.1
    ),
    neck=None,
)
optim_wrapper = dict(clip_grad=None)
