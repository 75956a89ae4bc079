"""Picture of sharing patterns: channel groups of each width, and how often each is trained (ViTAS, Fig. 1)."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..elastic.sharing import PATTERNS, shares
from . import theme

_USES = ListedColormap([theme.BAND, theme.SKY, theme.BLUE])
"""Colours of groups that are unused, used once, or used from both ends."""


def draw_sharing(groups: int) -> Figure:
    """Draw the three patterns side by side: groups of each width above, sums over all widths below.

    Args:
        groups: Number of channel groups.
    """
    with theme.context():
        figure = Figure(figsize=(3.4 * len(PATTERNS), 5.2))
        rows = figure.subplots(2, len(PATTERNS), sharex=True, sharey='row', height_ratios=[2, 1])
        for pattern, above, below in zip(PATTERNS, *rows):
            beta = shares(pattern, groups)
            _draw_uses(above, beta)
            above.set_title(pattern)
            _draw_sums(below, beta)
        rows[0][0].set_ylabel('width, in groups')
        rows[1][0].set_ylabel('sum over widths')
        rows[1][-1].legend(loc='upper right')
    return figure


def _draw_uses(axes: Axes, beta: np.ndarray) -> None:
    """One cell per width (row) and group (column), coloured by how often the width uses the group."""
    axes.pcolormesh(beta, cmap=_USES, vmin=0, vmax=2, edgecolor='white', linewidth=0.8)
    axes.set_yticks(np.arange(len(beta)) + 0.5, [str(size) for size in range(1, len(beta) + 1)])
    axes.grid(visible=False)
    axes.tick_params(length=0)


def _draw_sums(axes: Axes, beta: np.ndarray) -> None:
    """Training times and influence of each group."""
    places = np.arange(len(beta)) + 0.5
    influence = (beta / np.arange(1, len(beta) + 1)[:, None]).sum(0)
    axes.bar(places - 0.2, beta.sum(0), 0.36, color=theme.BLUE, label='training times')
    axes.bar(places + 0.2, influence, 0.36, color=theme.ORANGE, label='influence')
    axes.set_xticks(places, [str(group) for group in range(1, len(beta) + 1)])
    axes.set_xlabel('group of channels')
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=5))
