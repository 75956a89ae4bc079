"""Train the published S3-S alone.

For another network: ``--cfg-options model.backbone.arch=FILE``, or a zoo name.
"""

_base_ = './s3-t_retrain_8xb128-300e_imagenet.py'

model = dict(backbone=dict(arch='s3-s'))
