"""Hooks of scope ``vitnas``, one small file each."""

from .checkpoint import CheckpointHook
from .progress import ProgressHook
from .progressive import ProgressiveLearningHook
from .report import SupernetReportHook, read_report
from .sampler import SamplerStateHook, SamplerTrainHook

__all__ = [
    'CheckpointHook',
    'ProgressHook',
    'ProgressiveLearningHook',
    'SamplerStateHook',
    'SamplerTrainHook',
    'SupernetReportHook',
    'read_report',
]
