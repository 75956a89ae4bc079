"""Supernet training: loops, architecture samplers, rules, distillation, hooks."""

from .distillation import AdaptiveAlphaDivergence, KLDivergence
from .layer_decay import LayerDecayOptimWrapperConstructor
from .loops import SupernetTrainLoop
from .optim import BFloat16OptimWrapper
from .projection import GradientProjection
from .reinforce import Reinforce
from .sampler_loop import SamplerTrainLoop
from .teacher import Teacher
from .token_labels import TokenLabelHead, TokenLabelPreprocessor, TokenMix

__all__ = [
    'AdaptiveAlphaDivergence',
    'BFloat16OptimWrapper',
    'GradientProjection',
    'KLDivergence',
    'LayerDecayOptimWrapperConstructor',
    'Reinforce',
    'SamplerTrainLoop',
    'SupernetTrainLoop',
    'Teacher',
    'TokenLabelHead',
    'TokenLabelPreprocessor',
    'TokenMix',
]
