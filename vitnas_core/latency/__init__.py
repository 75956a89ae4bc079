"""Measured latency: tables of seconds per block and stage, and their measurement."""

from .table import SPEARMAN, BlockKey, LatencyTable, StageKey, Validation, block_keys, stage_keys

__all__ = ['SPEARMAN', 'BlockKey', 'LatencyTable', 'StageKey', 'Validation', 'block_keys', 'stage_keys']
