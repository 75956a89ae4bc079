"""Segmentors of the scenes, all but the model: data, schedule, and the searched micro S3 to build on.

Make the scenes by ``python tools/dataset_converters/make_scenes.py``. Start from random weights instead of the searched
backbone's by ``--cfg-options model.backbone.init_cfg=None``.
"""

_base_ = [
    '../backbones/s3_micro_fpn.py',
    '../_base_/datasets/scenes_segmentation.py',
    '../_base_/schedules/scenes_4e.py',
    '../_base_/default_runtime.py',
]
default_scope = 'mmseg'
visualizer = dict(type='SegLocalVisualizer')
