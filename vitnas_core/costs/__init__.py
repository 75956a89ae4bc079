"""What an architecture costs, without building it, and limits on costs. Nothing here knows torch."""

from .algebra import Count
from .constraint import Constraint, reachable_range
from .cost import Cost

__all__ = ['Constraint', 'Cost', 'Count', 'reachable_range']
