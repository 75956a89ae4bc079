"""Pictures of a search, of a supernet's training and of a learned sampler, and the report page that holds them."""

from .arch import draw_arch
from .pareto import draw_pareto
from .progress import draw_progress
from .report import write_report
from .sampler import SamplerDraws, collect_draws, draw_sampler
from .theme import save_png
from .training import draw_training

__all__ = [
    'SamplerDraws',
    'collect_draws',
    'draw_arch',
    'draw_pareto',
    'draw_progress',
    'draw_sampler',
    'draw_training',
    'save_png',
    'write_report',
]
