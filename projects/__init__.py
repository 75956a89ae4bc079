"""Code for single tasks. A config imports it by name: ``custom_imports=dict(imports=['projects.vqa.vqa'])``.

Other repositories, such as mmdet, have a folder ``projects`` too. This one is a package, so Python prefers it to plain
folders wherever they are on the path. Projects in those folders stay importable.
"""

import argparse
import re
from importlib import import_module
from pkgutil import extend_path

from mmengine.config import Config

from vitnas_core import launch

__path__ = extend_path(__path__, __name__)

VQA = re.compile(r'\b(BertEncoder|FusionTransformer|MatchHead|TokenNeck|VQA(Accuracy|Dataset|Head|Model))\b')
"""Types that were once part of ``vitnas_core``; configs that predate the move do not import the project."""


def read_config(options: argparse.Namespace) -> Config:
    """Read the config of a command line; import the VQA project for a config that predates it.

    Raises:
        VitnasError: There is no such file, or it has no model.
    """
    cfg = launch.read_config(options)
    if VQA.search(str(cfg.to_dict())):
        import_module('projects.vqa.vqa')
    return cfg
