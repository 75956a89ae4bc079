"""The picture of a sampler: costs and options of its draws by budget, for every space."""

import numpy as np
import pytest

from tests.families import SMALL_SPACES, SPACES
from vitnas_core.costs import Cost
from vitnas_core.spaces import SearchSpace
from vitnas_core.training.samplers import FocusSampler
from vitnas_core.visualization import SamplerDraws, collect_draws, draw_sampler
from vitnas_core.visualization.sampler import option_fractions

ALL = {**SPACES, **SMALL_SPACES}


def untrained(space, step=2e7):
    """A sampler that has learned nothing, of architectures that cost 1 M MACs an option's number."""
    sampler = FocusSampler(224, step=step)
    sampler.bind(space, lambda arch, size, classes: Cost(1, int(1e6 * (1 + (space.encode(arch) + 1).sum()))), 0)
    return sampler


def titles(figure):
    return [axes.get_title(loc='left') for axes in figure.axes]


def artist(axes, label):
    found = [a for a in axes.get_children() if a.get_label() == label]
    assert len(found) == 1, label
    return found[0]


def entries_of(space, name):
    return [i for i, dim in enumerate(space.dimensions) if dim.name == name and len(dim.options) > 1]


@pytest.mark.parametrize('name', ALL)
def test_every_space_is_drawn(name, rng):
    space = ALL[name]
    draws = collect_draws(untrained(space, 1e9), rng, num_draws=4, num_budgets=3)
    assert draws.costs.shape == (3, 4) and draws.codes.shape == (3, 4, len(space.dimensions))
    figure = draw_sampler(draws)
    names = list(dict.fromkeys(dim.name for dim in space.dimensions if len(dim.options) > 1))
    assert titles(figure) == ['Cost of 4 draws per budget', *('optional blocks' if n == 'blocks' else n for n in names)]
    figure.draw_without_rendering()
    for axes in figure.axes[1:]:
        assert axes.get_legend().get_window_extent().x0 >= axes.bbox.x1  # beside the areas
        assert axes.get_legend().get_window_extent().x1 <= figure.bbox.x1
    for name in names:
        labels, fractions = option_fractions(draws, entries_of(space, name))
        assert len(labels) == len(fractions) and np.all(np.isclose(fractions.sum(0), 1) | (fractions.sum(0) == 0))


def test_an_untrained_sampler_takes_every_option_equally_often(rng):
    space = SPACES['autoformer-tiny']
    draws = collect_draws(untrained(space), rng, num_draws=300, num_budgets=3)
    for name, options in (('embed_dim', '192 216 240'), ('depth', '12 13 14'), ('num_heads', '3 4')):
        labels, fractions = option_fractions(draws, entries_of(space, name))
        assert labels == options.split()
        np.testing.assert_allclose(fractions, 1 / len(labels), atol=0.12)


def made(space, budgets, costs=None, codes=None, grid=()):
    budgets = np.array(budgets, dtype=float)
    costs = np.tile(budgets[:, None], (1, 5)) if costs is None else costs
    codes = np.zeros((*costs.shape, len(space.dimensions)), dtype=int) if codes is None else codes
    return SamplerDraws(space, np.array(grid), budgets, costs, codes)


def test_bands_median_and_diagonal_of_the_costs():
    budgets = np.array([1e9, 2e9, 3e9])
    costs = budgets[:, None] * np.linspace(0.5, 1.5, 101)
    axes = draw_sampler(made(SMALL_SPACES['last'], budgets, costs, grid=[1e9, 3e9])).axes[0]
    np.testing.assert_allclose(artist(axes, 'median').get_data(), [budgets, budgets])
    for label, low, high in (('5 to 95 % of the draws', 0.55, 1.45), ('25 to 75 %', 0.75, 1.25)):
        corners = artist(axes, label).get_paths()[0].vertices
        for budget in budgets:
            at_budget = corners[np.isclose(corners[:, 0], budget), 1]
            np.testing.assert_allclose([at_budget.min(), at_budget.max()], [low * budget, high * budget])
    x, y = artist(axes, 'cost = budget').get_data()
    np.testing.assert_array_equal(x, y)
    assert x[0] < 1e9 and x[1] > 3e9 and axes.get_xlim() == axes.get_ylim() == (x[0], x[1])
    np.testing.assert_array_equal(artist(axes, 'budgets with an embedding (2)').get_xdata(), [1e9, 3e9])
    assert (axes.get_xlabel(), axes.get_ylabel()) == ('budget (G MACs)', 'cost (G MACs)')


def test_shares_are_of_the_blocks_that_are_there():
    space = SMALL_SPACES['last']  # size, width, depth of 0, 1 or 3, then op and k of each of three blocks
    codes = [
        [[0, 0, 0, -1, -1, -1, -1, -1, -1], [1, 0, 0, -1, -1, -1, -1, -1, -1]],
        [[0, 1, 1, 0, 1, -1, -1, -1, -1], [0, 1, 2, 1, 1, 1, 1, 0, 0]],
    ]
    draws = made(space, [1e6, 2e6], np.ones((2, 2)), np.array(codes))
    for name, labels, fractions in (
        ('size', ['8', '16'], [[0.5, 1], [0.5, 0]]),
        ('width', ['1', '2'], [[1, 0], [0, 1]]),
        ('depth', ['0', '1', '3'], [[1, 0], [0, 0.5], [0, 0.5]]),
        ('op', ['a', 'b'], [[0, 0.5], [0, 0.5]]),  # none has a block at the first budget
        ('k', ['3', '5'], [[0, 0.25], [0, 0.75]]),
    ):
        found = option_fractions(draws, entries_of(space, name))
        assert found[0] == labels
        np.testing.assert_allclose(found[1], fractions)
    axes = draw_sampler(draws).axes[1]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ['16', '8']  # as they are stacked
    first = artist(axes, '8').get_paths()[0].vertices
    assert first[first[:, 0] == 1e6, 1].max() == 0.5 and first[first[:, 0] == 2e6, 1].max() == 1


def test_options_of_stages_that_differ():
    space = SPACES['vit-resnas-tiny']
    assert option_fractions(made(space, [1e6]), entries_of(space, 'num_heads'))[0] == [
        '3 / 6',
        '4 / 8',
        '5 / 10',
        '6 / 12',
    ]
    assert option_fractions(made(space, [1e6]), entries_of(space, 'blocks'))[0] == ['absent', 'present']
    stages = [dict(width=[8, 16], depth=0, block={}), dict(width=[8, 16, 24, 32], depth=0, block={})]
    space = SearchSpace.from_dict(dict(family='toy', stages=stages))
    entries = entries_of(space, 'width')
    codes = np.zeros((1, 4, len(space.dimensions)), dtype=int)
    codes[0][:, entries] = [[0, 0], [0, 1], [1, 2], [1, 3]]
    labels, fractions = option_fractions(made(space, [1e6], np.ones((1, 4)), codes), entries)
    assert dict(zip(labels, fractions[:, 0])) == dict(smallest=3 / 8, between=2 / 8, largest=3 / 8)


def test_budgets_are_those_of_the_grid_and_others_not_too_near(rng):
    space = SPACES['autoformer-tiny']
    sampler = untrained(space)
    draws = collect_draws(sampler, rng, num_draws=1)
    assert set(sampler.grid) <= set(draws.budgets) and 20 <= len(draws.budgets) <= 25 + len(sampler.grid)
    others = np.setdiff1d(draws.budgets, sampler.grid)
    assert np.abs(others[:, None] - sampler.grid).min() > (sampler.high - sampler.low) / 50
    fine = untrained(space, 5e5)
    assert len(fine.grid) > 50 and len(collect_draws(fine, rng, num_draws=1).budgets) == 25


def test_a_space_of_one_and_one_of_many_kinds(rng):
    space = SPACES['autoformer-tiny']
    draws = collect_draws(untrained(space.fix(space.largest())), rng, num_draws=2)
    figure = draw_sampler(draws)
    figure.draw_without_rendering()
    assert len(draws.budgets) == 1 and titles(figure) == ['Cost of 2 draws per budget']
    letters = {letter: [1, 2] for letter in 'abcdefghij'}
    many = SearchSpace.from_dict(dict(family='toy', stages=[dict(depth=0, block={}, **letters)]))
    figure = draw_sampler(made(many, [500, 900]))
    assert titles(figure)[1:] == list('abcdefgh')
    assert figure.texts[0].get_text().endswith('(not shown: i, j)')
    assert figure.axes[0].get_xlabel() == 'budget (MACs)'
