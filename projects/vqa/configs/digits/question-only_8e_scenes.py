"""The same model without an image: how far the questions alone lead."""

_base_ = './s3-micro_8e_scenes.py'

model = dict(backbone=None, neck=None)
find_unused_parameters = True  # the fusion has a weight for tokens of images
