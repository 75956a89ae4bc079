"""Training rules: turn the architectures of a step into gradients."""

from .base import TrainingRule
from .multi_arch import MultiArch
from .sandwich import Sandwich
from .single_path import SinglePath

__all__ = ['MultiArch', 'Sandwich', 'SinglePath', 'TrainingRule']
