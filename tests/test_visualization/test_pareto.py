"""The Pareto picture: candidates, front, limits and baselines, also for degenerate searches."""

import dataclasses
import math

import numpy as np
import pytest

from tests.test_visualization.made import METRIC, candidates, search
from vitnas_core.errors import VitnasError
from vitnas_core.visualization import draw_pareto, save_png


def labels(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def artist(figure, start):
    """The artist whose label begins so."""
    found = [a for a in figure.axes[0].get_children() if str(a.get_label()).startswith(start)]
    assert len(found) == 1, (start, labels(figure))
    return found[0]


def test_every_candidate_is_drawn_by_its_generation():
    data = search()
    figure = draw_pareto(**data, metric=METRIC)
    full = [c for c in data['candidates'] if c.complete]
    points = artist(figure, 'candidates (54)')
    np.testing.assert_allclose(points.get_offsets(), [(c.cost['macs'], c.score) for c in full])
    np.testing.assert_array_equal(points.get_array(), [c.generation for c in full])
    dropped = artist(figure, 'scored on a part of the data (6)')
    expected = [(c.cost['macs'], c.score) for c in data['candidates'] if not c.complete]
    np.testing.assert_allclose(dropped.get_offsets(), expected)
    assert len(dropped.get_facecolor()) == 0  # hollow


def test_front_winner_and_units():
    data = search()
    figure = draw_pareto(**data | dict(front=data['front'][::-1]), metric=METRIC)
    line = artist(figure, 'Pareto front')
    np.testing.assert_allclose(line.get_xdata(), sorted(c.cost['macs'] for c in data['front']))
    best = data['best']
    star = artist(figure, 'winner')
    np.testing.assert_allclose(star.get_offsets(), [(best.cost['macs'], best.score)])
    assert star.get_label() == f'winner: {best.score:.2f} % at {best.cost["macs"] / 1e6:.2f} M'
    axes = figure.axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ('MACs (M)', 'accuracy/top1 (%)')
    figure.draw_without_rendering()
    assert {float(t.get_text()) for t in axes.get_xticklabels()} <= set(np.arange(0, 10, 0.1).round(1))


@pytest.mark.parametrize('limit', [(None, 5.1e6), (-math.inf, 5.1e6)])
def test_limit_near_the_candidates_is_in_view(limit):
    figure = draw_pareto(**search(), limit=limit)
    assert figure.axes[0].get_xlim()[1] > 5.1e6
    assert 'limit: at most 5.10 M' in labels(figure)
    assert list(artist(figure, 'limit').get_xdata()) == [5.1e6, 5.1e6]


def test_limit_far_from_the_candidates_does_not_squeeze_them():
    figure = draw_pareto(**search(), limit=(1e3, 9e9))
    left, right = figure.axes[0].get_xlim()
    assert left > 1e6 and right < 6e6
    assert labels(figure)[-2:] == ['limit: at least 1.0 k (off the plot)', 'limit: at most 9.000 G (off the plot)']


def test_baselines_are_marked_and_far_ones_only_named():
    baselines = [('random', 82.0, {'macs': 3e6}), ('largest', 99.0, {'macs': 9e9}), ('no cost', 90.0, {})]
    figure = draw_pareto(**search(), baselines=baselines, metric=METRIC)
    assert 'random: 82.00 % at 3.00 M' in labels(figure)
    assert 'largest (off the plot): 99.00 % at 9.000 G' in labels(figure)
    assert not any('no cost' in label for label in labels(figure))
    assert figure.axes[0].get_xlim()[1] < 6e6


def test_other_cost():
    data = search()
    figure = draw_pareto(data['candidates'], (), data['best'], cost='latency')
    assert figure.axes[0].get_xlabel() == 'Latency (ms)'
    assert not any(label.startswith('Pareto') for label in labels(figure))
    with pytest.raises(VitnasError, match=r"candidate 0 has no cost 'energy' to draw; it has macs, params, latency"):
        draw_pareto(**data, cost='energy')


def test_scores_of_a_part_are_faint_even_when_high():
    found = [dataclasses.replace(c, fraction=0.25, complete=True) for c in candidates(9)]
    whole = dataclasses.replace(found[0], id=99, fraction=1.0, score=50.0)
    figure = draw_pareto([*found, whole], [whole], whole)
    assert labels(figure)[:2] == ['scored on a part of the data (9)', 'candidates (1)']


@pytest.mark.parametrize('kind', ['one', 'equal', 'not finite', 'zero cost', 'one generation'])
def test_degenerate_searches_are_drawn(kind, tmp_path):
    found = [c for c in candidates(12) if c.complete]
    if kind == 'one':
        found = found[:1]
    elif kind == 'equal':
        found = [dataclasses.replace(c, score=90.0, cost={'macs': 1e6}) for c in found]
    elif kind == 'not finite':
        found[1:] = [dataclasses.replace(c, score=math.nan) for c in found[1:]]
    elif kind == 'zero cost':
        found = [dataclasses.replace(c, score=0.0, cost={'macs': 0.0}) for c in found]
    else:
        found = [dataclasses.replace(c, generation=3) for c in found]
    figure = draw_pareto(found, found[:1], found[0])
    save_png(figure, tmp_path / 'p.png')
    axes = figure.axes[0]
    assert len(figure.axes) == 1 or kind == 'equal' or kind == 'zero cost'  # no colour bar for one generation
    for low, high in (axes.get_xlim(), axes.get_ylim()):
        assert math.isfinite(low) and math.isfinite(high) and low < high
    winner = artist(figure, 'winner').get_offsets()[0]
    assert axes.get_xlim()[0] < winner[0] < axes.get_xlim()[1] and axes.get_ylim()[0] < winner[1] < axes.get_ylim()[1]


def test_png_is_whole_and_the_same_each_time(tmp_path):
    for name in ('a.png', 'b.png'):
        save_png(draw_pareto(**search()), tmp_path / 'new' / name, dpi=60)
    first, second = ((tmp_path / 'new' / name).read_bytes() for name in ('a.png', 'b.png'))
    assert first == second and first.startswith(b'\x89PNG')
    assert {f.name for f in (tmp_path / 'new').iterdir()} == {'a.png', 'b.png'}


def test_the_settings_of_the_user_neither_count_nor_change(tmp_path):
    import matplotlib

    save_png(draw_pareto(**search()), tmp_path / 'a.png', dpi=60)
    with matplotlib.rc_context({'font.size': 22, 'axes.facecolor': 'black', 'savefig.facecolor': 'red'}):
        save_png(draw_pareto(**search()), tmp_path / 'b.png', dpi=60)
        assert matplotlib.rcParams['font.size'] == 22
    assert (tmp_path / 'a.png').read_bytes() == (tmp_path / 'b.png').read_bytes()
