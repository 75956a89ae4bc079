"""Hooks of scope ``vitnas``, one small file each."""

from .checkpoint import CheckpointHook
from .inherit import InheritHook
from .progress import ProgressHook
from .progressive import ProgressiveLearningHook
from .report import SupernetReportHook, read_report
from .sampler import SamplerStateHook, SamplerTrainHook
from .sorting import SortChannelsHook

__all__ = [
    'CheckpointHook',
    'InheritHook',
    'ProgressHook',
    'ProgressiveLearningHook',
    'SamplerStateHook',
    'SamplerTrainHook',
    'SortChannelsHook',
    'SupernetReportHook',
    'read_report',
]
