"""Datasets of scope ``vitnas``: the embedded digits, and the hold-out split of any training set."""

from .digits import Digits
from .holdout import HoldOut
from .scenes import Scene, make_scene, write_scenes

__all__ = ['Digits', 'HoldOut', 'Scene', 'make_scene', 'write_scenes']
