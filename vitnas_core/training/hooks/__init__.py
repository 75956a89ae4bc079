"""Hooks of scope ``vitnas``, one small file each."""

from .checkpoint import CheckpointHook
from .conflict import ConflictMeterHook, read_conflicts
from .inherit import InheritHook
from .progress import ProgressHook
from .progressive import ProgressiveLearningHook
from .recalibrate import RecalibrateHook
from .report import SupernetReportHook, read_report
from .sampler import SamplerStateHook, SamplerTrainHook
from .seeding import StepSeedHook
from .sorting import SortChannelsHook

__all__ = [
    'CheckpointHook',
    'ConflictMeterHook',
    'InheritHook',
    'ProgressHook',
    'ProgressiveLearningHook',
    'RecalibrateHook',
    'SamplerStateHook',
    'SamplerTrainHook',
    'SortChannelsHook',
    'StepSeedHook',
    'SupernetReportHook',
    'read_conflicts',
    'read_report',
]
