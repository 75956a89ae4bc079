"""The registries of scope ``vitnas``: children of mmengine's, so that every mm config finds our parts.

``dict(type='vitnas.AutoFormer')`` works in any mmdet, mmseg or mmpretrain config that says
``custom_imports = dict(imports=['vitnas_core'])``; the module that holds the part is imported on first use.
"""

from mmengine import registry as mm

MODELS = mm.Registry('model', parent=mm.MODELS, scope='vitnas', locations=['vitnas_core.backbones'])
DATASETS = mm.Registry('dataset', parent=mm.DATASETS, scope='vitnas', locations=['vitnas_core.datasets'])
HOOKS = mm.Registry('hook', parent=mm.HOOKS, scope='vitnas', locations=['vitnas_core.training.hooks'])
