"""The same model without images: how far do the questions alone lead?"""

_base_ = './s3-micro_8e_scenes.py'

model = dict(backbone=None, neck=None)
find_unused_parameters = True  # the fusion has a weight for image tokens
