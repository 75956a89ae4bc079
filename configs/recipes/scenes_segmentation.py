"""Recipe for segmentors on the scenes: data, schedule and the searched micro S3. Configs add the model.

Make the scenes with ``python tools/dataset_converters/make_scenes.py``. To start from random weights instead of the
searched ones: ``--cfg-options model.backbone.init_cfg=None``.
"""

_base_ = [
    '../backbones/s3_micro_fpn.py',
    '../_base_/datasets/scenes_segmentation.py',
    '../_base_/schedules/scenes_4e.py',
    '../_base_/default_runtime.py',
]
default_scope = 'mmseg'
visualizer = dict(type='SegLocalVisualizer')
