"""Architectures and search spaces as data. Nothing here imports torch."""

from .arch import Arch, Choices, Stage, Value
from .evolving import StageDimension, stage_dimensions
from .grammar import ChoiceSpace, StageSpace
from .limits import Limits
from .schema import Schema
from .space import ABSENT, Dimension, SearchSpace

__all__ = [
    'ABSENT',
    'Arch',
    'ChoiceSpace',
    'Choices',
    'Dimension',
    'Limits',
    'Schema',
    'SearchSpace',
    'Stage',
    'StageDimension',
    'StageSpace',
    'Value',
    'stage_dimensions',
]
