"""Datasets of scope ``vitnas``: the embedded digits, and the hold-out split of any training set."""

from .digits import Digits
from .holdout import HoldOut

__all__ = ['Digits', 'HoldOut']
