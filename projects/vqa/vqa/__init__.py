"""Visual question answering: dataset, model and metric."""

from .answers import agreement, frequent_answers, normalise, read_answers, score, soft_targets
from .bert import BertEncoder, FusionTransformer
from .dataset import VQADataset
from .metric import VQAAccuracy
from .model import MatchHead, TokenNeck, VQAHead, VQAModel

__all__ = [
    'BertEncoder',
    'FusionTransformer',
    'MatchHead',
    'TokenNeck',
    'VQAAccuracy',
    'VQADataset',
    'VQAHead',
    'VQAModel',
    'agreement',
    'frequent_answers',
    'normalise',
    'read_answers',
    'score',
    'soft_targets',
]
