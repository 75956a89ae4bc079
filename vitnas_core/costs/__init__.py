"""Costs of architectures, without building them, and limits on costs. Nothing here imports torch."""

from .algebra import Count
from .constraint import Constraint, reachable_range
from .cost import Cost

__all__ = ['Constraint', 'Cost', 'Count', 'reachable_range']
