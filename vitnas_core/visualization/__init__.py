"""Pictures of a search and of a supernet's training, and the report page that holds them."""

from .arch import draw_arch
from .pareto import draw_pareto
from .progress import draw_progress
from .report import write_report
from .theme import save_png
from .training import draw_training

__all__ = ['draw_arch', 'draw_pareto', 'draw_progress', 'draw_training', 'save_png', 'write_report']
