"""Training rules: how the architectures of a step become gradients."""

from .base import TrainingRule
from .sandwich import Sandwich
from .single_path import SinglePath

__all__ = ['Sandwich', 'SinglePath', 'TrainingRule']
