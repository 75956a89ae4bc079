"""Hooks of scope ``vitnas``, one small file each."""

from .checkpoint import CheckpointHook
from .progress import ProgressHook
from .report import SupernetReportHook, read_report

__all__ = ['CheckpointHook', 'ProgressHook', 'SupernetReportHook', 'read_report']
