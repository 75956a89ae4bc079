"""Scoring an architecture with the weights of its supernet: scorer, racing, batch-norm recalibration."""

from .racing import Racing
from .recalibration import batch_norms, elastic_norms, recalibrate
from .scorer import Job, Result, Scorer, whole
from .steps import AccuracyStep, AnyStep, check_images, in_percent, make_step

__all__ = [
    'AccuracyStep',
    'AnyStep',
    'Job',
    'Racing',
    'Result',
    'Scorer',
    'batch_norms',
    'check_images',
    'elastic_norms',
    'in_percent',
    'make_step',
    'recalibrate',
    'whole',
]
