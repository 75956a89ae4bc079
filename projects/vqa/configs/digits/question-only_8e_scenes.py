"""The same model without images: the accuracy that the questions alone allow."""

_base_ = './s3-micro_8e_scenes.py'

model = dict(backbone=None, neck=None)
find_unused_parameters = True  # the fusion has a weight for image tokens
