"""Workers that score candidates: this process (``serial``), or all ranks of a distributed run (``ranks``)."""

from .base import Failure, Workers
from .ranks import RankWorkers
from .serial import SerialWorkers

__all__ = ['Failure', 'RankWorkers', 'SerialWorkers', 'Workers']
