"""Search algorithms, one per file: each proposes a round of architectures, then learns their scores."""

from .base import Proposal, SearchAlgorithm
from .evolution import Evolution
from .halving import Halving
from .nsga2 import NSGA2
from .policy import Policy
from .predictor import Predictor
from .random import Random

__all__ = ['NSGA2', 'Evolution', 'Halving', 'Policy', 'Predictor', 'Proposal', 'Random', 'SearchAlgorithm']
