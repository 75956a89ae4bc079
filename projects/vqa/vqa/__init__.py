"""Questions about images: data, model and metric of visual question answering."""

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
