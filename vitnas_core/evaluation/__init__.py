"""Scoring an architecture with the weights of its supernet: scorer, racing, batch-norm recalibration."""

from .batches import KeptBatches, whole, whole_loader
from .racing import Racing
from .recalibration import batch_norms, calibrate, elastic_norms, recalibrate
from .scorer import BatchScorer, Job, Result, Scorer
from .several import score_all
from .steps import AccuracyStep, AnyStep, check_images, in_percent, make_step

__all__ = [
    'AccuracyStep',
    'AnyStep',
    'BatchScorer',
    'Job',
    'KeptBatches',
    'Racing',
    'Result',
    'Scorer',
    'batch_norms',
    'calibrate',
    'check_images',
    'elastic_norms',
    'in_percent',
    'make_step',
    'recalibrate',
    'score_all',
    'whole',
    'whole_loader',
]
