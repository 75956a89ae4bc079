"""Pictures of a search, its predictor, a space search, a supernet's training, a sampler and sharing; report pages."""

from .arch import draw_arch
from .conflicts import draw_conflicts
from .pareto import draw_pareto
from .predictor import draw_predictor
from .progress import draw_progress
from .report import write_report
from .sampler import SamplerDraws, collect_draws, draw_sampler
from .sharing import draw_sharing
from .space import draw_choice_distribution, draw_error_distribution, draw_space_steps
from .space_report import write_space_report
from .theme import save_png
from .training import draw_training

__all__ = [
    'SamplerDraws',
    'collect_draws',
    'draw_arch',
    'draw_choice_distribution',
    'draw_conflicts',
    'draw_error_distribution',
    'draw_pareto',
    'draw_predictor',
    'draw_progress',
    'draw_sampler',
    'draw_sharing',
    'draw_space_steps',
    'draw_training',
    'save_png',
    'write_report',
    'write_space_report',
]
