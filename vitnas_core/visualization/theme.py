"""Fonts and colours of all pictures; helpers that make figures without pyplot and save them."""

from __future__ import annotations

import io
import os
from contextlib import AbstractContextManager
from typing import Any

import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from ..utils.fileio import atomic_write

# Okabe and Ito's palette: told apart with every kind of colour blindness and in grey print.
BLUE, VERMILION, GREEN, ORANGE, PURPLE, SKY = '#0072B2', '#D55E00', '#009E73', '#E69F00', '#CC79A7', '#56B4E9'
INK, FAINT_INK, FAINT, TRACK, BAND = '#1F2933', '#616E7C', '#9AA5B1', '#E4E7EB', '#F5F7FA'
PALETTE = (BLUE, VERMILION, GREEN, ORANGE, PURPLE, SKY)

# Viridis from green to violet: perceptually uniform, without the yellow that is hard to see on white paper.
GENERATIONS = LinearSegmentedColormap.from_list(
    'generations', [matplotlib.colormaps['viridis'](0.86 - 0.86 * step / 31) for step in range(32)]
)

_STYLE: dict[str, Any] = {
    'font.size': 10,
    'font.family': 'sans-serif',
    'axes.titlesize': 11,
    'axes.titleweight': 'bold',
    'axes.titlelocation': 'left',
    'axes.edgecolor': FAINT,
    'axes.labelcolor': INK,
    'axes.spines.top': False,
    'axes.spines.right': False,
    'axes.grid': True,
    'axes.axisbelow': True,
    'grid.color': TRACK,
    'grid.linewidth': 0.8,
    'text.color': INK,
    'text.parse_math': False,  # a dollar sign in a name is a dollar sign
    'xtick.color': FAINT_INK,
    'ytick.color': FAINT_INK,
    'legend.frameon': False,
    'legend.fontsize': 9,
    'lines.linewidth': 1.8,
    'figure.constrained_layout.use': True,
    'svg.fonttype': 'none',  # real text: small, searchable, readable by screen readers
}


def context() -> AbstractContextManager[None]:
    """Use our matplotlib settings inside a ``with`` block, and restore the user's settings after it."""
    return matplotlib.style.context(['default', _STYLE])


def new_axes(width: float, height: float) -> tuple[Figure, Axes]:
    """Make a figure with one set of axes, sized in inches. Call it inside :func:`context`."""
    figure = Figure(figsize=(width, height))
    return figure, figure.add_subplot()


def save_png(figure: Figure, path: str | os.PathLike, dpi: int = 150) -> None:
    """Write a figure as PNG, atomically; equal figures give equal bytes.

    Args:
        figure (Figure): The picture.
        path (str | os.PathLike): The file.
        dpi (int): Pixels per inch. Defaults to 150.
    """
    buffer = io.BytesIO()
    with context():
        figure.savefig(buffer, format='png', dpi=dpi, metadata={'Software': None})
    atomic_write(path, buffer.getvalue())
