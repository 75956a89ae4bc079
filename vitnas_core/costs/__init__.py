"""What an architecture costs, without building it; measured latency; limits on costs; a real count to check against."""

from .constraint import Constraint, reachable_range
from .cost import Cost, as_size, priced_size
from .counting import count_macs, count_params
from .latency import LatencyTable

__all__ = [
    'Constraint',
    'Cost',
    'LatencyTable',
    'as_size',
    'count_macs',
    'count_params',
    'priced_size',
    'reachable_range',
]
