"""Hooks of scope ``vitnas``, one small file each."""

from .checkpoint import CheckpointHook
from .progress import ProgressHook

__all__ = ['CheckpointHook', 'ProgressHook']
