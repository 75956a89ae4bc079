"""Train S3-B at 384 × 384 for 10 epochs from its weights at 224.

For other weights: ``--cfg-options load_from=FILE``.
"""

_base_ = './s3-s_finetune_8xb64-10e_imagenet-384.py'

model = dict(backbone=dict(arch='s3-b-384'))
load_from = 'work_dirs/s3-b_retrain_8xb128-300e_imagenet/epoch_300.pth'
