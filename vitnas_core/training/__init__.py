"""Training a supernet: the loop, samplers of architectures, rules, distillation, hooks."""

from .distillation import KLDivergence, SoftCrossEntropy
from .layer_decay import LayerDecayOptimWrapperConstructor
from .loops import SupernetTrainLoop
from .optim import BFloat16OptimWrapper
from .reinforce import Reinforce
from .sampler_loop import SamplerTrainLoop
from .token_labels import TokenLabelHead, TokenLabelPreprocessor, TokenMix

__all__ = [
    'BFloat16OptimWrapper',
    'KLDivergence',
    'LayerDecayOptimWrapperConstructor',
    'Reinforce',
    'SamplerTrainLoop',
    'SoftCrossEntropy',
    'SupernetTrainLoop',
    'TokenLabelHead',
    'TokenLabelPreprocessor',
    'TokenMix',
]
