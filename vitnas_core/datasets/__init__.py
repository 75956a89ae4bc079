"""Datasets of scope ``vitnas``: the embedded digits, scenes made of them, the hold-out split of any training set."""

from .digits import Digits
from .holdout import HoldOut
from .order import WholeSampler
from .scenes import Scene, make_scene, write_scenes
from .transforms import DrawDigit

__all__ = ['Digits', 'DrawDigit', 'HoldOut', 'Scene', 'WholeSampler', 'make_scene', 'write_scenes']
