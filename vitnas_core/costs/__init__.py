"""What an architecture costs, without building it; limits on costs; a real count to check against."""

from .constraint import Constraint, reachable_range
from .cost import Cost, as_size, priced_size
from .counting import count_macs, count_params

__all__ = [
    'Constraint',
    'Cost',
    'as_size',
    'count_macs',
    'count_params',
    'priced_size',
    'reachable_range',
]
