"""Searching a trained supernet: loops that run as ``train_cfg``, their journal and their results."""

from .candidate import Candidate, ranked
from .evolution import EvolutionSearchLoop
from .halving import SuccessiveHalvingLoop
from .journal import Journal, read_candidates
from .loops import Proposal, SearchLoop
from .nsga2 import NSGA2SearchLoop
from .pareto import pareto_front
from .predictor import ForestPredictor, PredictorValidation
from .predictor_loop import PredictorSearchLoop
from .random import RandomSearchLoop
from .sampled import SamplerSearchLoop
from .space_quality import Sample, SpaceEvolution, SpaceQuality, SpaceStep
from .space_search import SpaceSearch

__all__ = [
    'Candidate',
    'EvolutionSearchLoop',
    'ForestPredictor',
    'Journal',
    'NSGA2SearchLoop',
    'PredictorSearchLoop',
    'PredictorValidation',
    'Proposal',
    'RandomSearchLoop',
    'Sample',
    'SamplerSearchLoop',
    'SearchLoop',
    'SpaceEvolution',
    'SpaceQuality',
    'SpaceSearch',
    'SpaceStep',
    'SuccessiveHalvingLoop',
    'pareto_front',
    'ranked',
    'read_candidates',
]
