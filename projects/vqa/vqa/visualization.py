"""Picture of a VQA model's attention: questions about an image, the answers, and the image under the attention."""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_rgb
from matplotlib.figure import Figure

from vitnas_core.visualization import theme

from .attention import Look

_HEAT = LinearSegmentedColormap.from_list('heat', [(*to_rgb(theme.ORANGE), opacity) for opacity in (0.0, 0.8)])
"""Colour map from transparent to nearly opaque."""


def draw_looks(image: np.ndarray, looks: Sequence[Look]) -> Figure:
    """Draw one row per question: the likeliest answers, then the image under the attention of each layer.

    Args:
        image: RGB image, ``uint8`` of shape (H, W, 3).
        looks: Questions about it, all answered by one model.
    """
    layers = len(looks[0].maps)
    height = 2.6 * image.shape[0] / image.shape[1] + 0.5
    with theme.context():
        figure = Figure(figsize=(2.2 + 2.6 * layers, height * len(looks)), layout='constrained')
        grid = figure.subplots(len(looks), 1 + layers, squeeze=False, width_ratios=[0.9, *[1] * layers])
        for row, (one, axes) in enumerate(zip(looks, grid)):
            _draw_answers(axes[0], one)
            for layer, (attention, place) in enumerate(zip(one.maps, axes[1:])):
                _draw_attention(place, image, attention)
                if row == 0:
                    place.set_title(f'layer {layer + 1}', fontsize=9)
    return figure


def _draw_answers(axes: Axes, look: Look) -> None:
    names, scores = zip(*look.answers)
    places = np.arange(len(names))[::-1]
    axes.barh(places, scores, 0.6, color=[theme.BLUE, *[theme.SKY] * (len(names) - 1)])
    axes.set_yticks(places, names)
    axes.set(xlim=(0, 1), xticks=[0, 1])
    axes.set_title(look.question, fontsize=9, loc='left')
    axes.grid(visible=False)


def _draw_attention(axes: Axes, image: np.ndarray, attention: np.ndarray) -> None:
    """Draw the image in grey, coloured by attention."""
    axes.imshow(image.mean(-1), cmap='gray', vmin=0, vmax=255)
    heat = cv2.resize(attention / attention.max(), image.shape[1::-1], interpolation=cv2.INTER_CUBIC).clip(0, 1)
    axes.imshow(heat, cmap=_HEAT, vmin=0, vmax=1)
    axes.set(xticks=[], yticks=[])
    axes.set_xlabel(f'{100 * attention.sum():.0f} % on the image', fontsize=8)
