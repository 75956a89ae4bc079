"""Architecture samplers: pick the architectures of a training step."""

from .base import ArchSampler
from .focus import FocusSampler
from .multi_arch import MultiArchSampler
from .sandwich import SandwichSampler
from .uniform import UniformSampler
from .warmup import WarmUpSampler

__all__ = [
    'ArchSampler',
    'FocusSampler',
    'MultiArchSampler',
    'SandwichSampler',
    'UniformSampler',
    'WarmUpSampler',
]
