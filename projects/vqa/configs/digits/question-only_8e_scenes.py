"""The same model without an image: how far the questions alone lead."""

_base_ = './s3-micro_8e_scenes.py'

model = dict(backbone=None, neck=None)
