"""Search of a trained supernet: algorithms, the loops that run them as ``train_cfg``, journal and results."""

from .algorithms import NSGA2, Evolution, Halving, Policy, Predictor, Proposal, Random, SearchAlgorithm
from .candidate import Candidate, ranked
from .journal import Journal, read_candidates
from .loop import SearchLoop
from .named import (
    EvolutionSearchLoop,
    NSGA2SearchLoop,
    PredictorSearchLoop,
    RandomSearchLoop,
    SamplerSearchLoop,
    SuccessiveHalvingLoop,
)
from .pareto import pareto_front
from .predictor import ForestPredictor, PredictorValidation
from .space_quality import Sample, SpaceEvolution, SpaceQuality, SpaceStep
from .space_search import SpaceSearch

__all__ = [
    'NSGA2',
    'Evolution',
    'Halving',
    'Policy',
    'Predictor',
    'Random',
    'SearchAlgorithm',
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
