"""The progress picture: best so far and medians by generation, also with hardly any candidates."""

import dataclasses

import numpy as np
import pytest

from tests.test_visualization.made import METRIC, candidates
from vitnas_core.visualization import draw_progress


def lines(figure):
    return {line.get_label(): line for line in figure.axes[0].get_lines()}


def test_best_so_far_and_median_of_each_generation():
    found = candidates()
    # The best comes early: the line of the best must not fall after it.
    found[0] = dataclasses.replace(found[0], score=200.0)
    drawn = lines(draw_progress(found[::-1], METRIC))
    scores = [[c.score for c in found if c.generation == g and c.complete] for g in range(4)]
    np.testing.assert_allclose(drawn['median'].get_ydata(), [np.median(s) for s in scores])
    np.testing.assert_allclose(drawn['best so far'].get_ydata(), [200.0] * 4)
    assert list(drawn['median'].get_xdata()) == [0, 1, 2, 3]


def test_one_generation_is_drawn_candidate_by_candidate():
    found = [dataclasses.replace(c, generation=0, complete=True) for c in candidates(10)]
    figure = draw_progress(found)
    assert figure.axes[0].get_xlabel() == 'candidates evaluated'
    best = lines(figure)['best so far'].get_ydata()
    np.testing.assert_allclose(best, np.maximum.accumulate([c.score for c in found]))


def test_rungs_of_a_part_are_faint_points_only():
    found = [
        dataclasses.replace(c, complete=True, fraction=(0.25, 0.5, 1.0)[i % 3]) for i, c in enumerate(candidates(9))
    ]
    found = [dataclasses.replace(c, generation={0.25: 0, 0.5: 1, 1.0: 2}[c.fraction]) for c in found]
    figure = draw_progress(found)
    assert list(lines(figure)['best so far'].get_xdata()) == [2]
    faint = [c for c in figure.axes[0].collections if c.get_label() == 'scored on a part']
    assert len(faint[0].get_offsets()) == 6


@pytest.mark.parametrize('count', [0, 1])
def test_hardly_any_candidate(count):
    figure = draw_progress(candidates(1)[:count])
    figure.draw_without_rendering()
    assert len(lines(figure)) == count
