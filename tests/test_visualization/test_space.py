"""Pictures of a space search: moves of the choices, and distributions of the errors."""

import dataclasses
import math

import numpy as np
import pytest

from tests.families import SMALL_SPACES, SPACES
from tests.test_visualization.test_arch import touching
from vitnas_core.errors import SpaceError, VitnasError
from vitnas_core.search.space_quality import Sample, SpaceEvolution, SpaceStep
from vitnas_core.spaces import SearchSpace, stage_dimensions
from vitnas_core.visualization import draw_choice_distribution, draw_error_distribution, draw_space_steps, save_png
from vitnas_core.visualization.svg import inline_svg

NAMES = ['depth', 'embed_dim', 'num_heads', 'mlp_ratio', 'window_size']
EVOLUTION = SpaceEvolution(
    dict(depth=1, embed_dim=32, num_heads=1, mlp_ratio=0.5, window_size=7), threshold=0.25, rounding='symmetric'
)


def s3_space(stages=4, **choices):
    block = dict(num_heads=[7, 8, 9], mlp_ratio=[3.0, 3.5, 4.0], window_size=[7, 14])
    stage = dict(embed_dim=[224, 256, 288], depth=[2, 3, 4], block=block)
    return SearchSpace.from_dict(dict(family='s3', stages=[stage] * stages, **choices))


def drawn(space, count, seed=0):
    """Samples whose error falls with the blocks of every third stage and with the width of every second."""
    rng = np.random.default_rng(seed)
    samples = []
    for arch in (space.sample(rng) for _ in range(count)):
        gain = sum((s % 3 == 2 or -1) * stage.depth for s, stage in enumerate(arch.stages))
        gain += sum((s % 2 or -1) * stage.choices['embed_dim'] / 64 for s, stage in enumerate(arch.stages))
        samples.append(Sample(arch, float(50 - gain + rng.normal())))
    return tuple(samples)


def space_steps(count=4, num_samples=200, stages=4, **choices):
    """A space search that was never run on a network."""
    space, steps = s3_space(stages, **choices), []
    for i in range(count):
        samples = drawn(space, num_samples, i)
        tendencies = EVOLUTION.tendencies(space, samples) if i + 1 < count else ()
        steps.append(SpaceStep(space, samples, tendencies))
        space = EVOLUTION.evolve(space, tendencies)
    return steps


def with_errors(step, errors):
    return dataclasses.replace(step, samples=tuple(Sample(s.arch, e) for s, e in zip(step.samples, errors)))


def lines(axes):
    return {line.get_label(): line for line in axes.get_lines()}


def share_at_most(errors, x):
    return [np.mean(np.asarray(errors) <= value) for value in x]


def texts(legend):
    return [text.get_text() for text in legend.get_texts()]


def check_layout(figure):
    """Nothing leaves the picture, no panel covers another, no tick label covers another, and views are not empty."""
    figure.draw_without_rendering()
    boxes = [axes.get_tightbbox() for axes in figure.axes]
    for box in boxes:
        assert box.x0 >= -1 and box.y0 >= -1 and box.x1 <= figure.bbox.x1 + 1 and box.y1 <= figure.bbox.y1 + 1
    assert not touching(boxes)
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            assert math.isfinite(low) and math.isfinite(high) and low < high
            assert any(low <= place <= high for place in axis.get_majorticklocs())
            shown = [t for t in axis.get_ticklabels() if t.get_visible() and t.get_text()]
            inside = [t for t in shown if low <= t.get_position()[axis is axes.yaxis] <= high]
            assert not touching([label.get_window_extent() for label in inside])


# where the choices moved


def panels(figure, steps):
    """The panels by dimension path, and their rows' labels, as they should be laid out."""
    dimensions = stage_dimensions(steps[0].space)
    order = sorted(dict.fromkeys(d.name for d in dimensions if d.stage is not None), key=lambda name: name != 'depth')
    order += [d.name for d in dimensions if d.stage is None]
    ordered = [d for name in order for d in dimensions if d.name == name]
    assert len(figure.axes) == len(ordered)
    return dict(zip((d.path for d in ordered), figure.axes)), order


def test_a_dot_is_a_choice_of_a_step():
    steps = space_steps(resolution=[192, 224])
    found, order = panels(draw_space_steps(steps), steps)
    assert order == [*NAMES, 'resolution'] and len(found) == 5 * 4 + 1
    for path, axes in found.items():
        expected = [
            (i, float(value))
            for i, step in enumerate(steps)
            for dimension in stage_dimensions(step.space)
            if dimension.path == path
            for value in dimension.options
        ]
        np.testing.assert_array_equal(np.transpose(lines(axes)['choice'].get_data()), expected)
    assert lines(found['stages[2].depth'])['choice'].get_ydata().max() > 4  # some did move


def test_lines_join_lowest_mean_and_highest():
    steps = space_steps()
    axes = panels(draw_space_steps(steps), steps)[0]['stages[0].depth']
    choices = [step.space.stages[0].depths for step in steps]
    assert choices[0] == (2, 3, 4) and len(choices[-1]) < 3  # some were dropped at zero
    _, low, high, _ = (line.get_ydata() for line in axes.get_lines())  # dots, edges, mean
    np.testing.assert_array_equal(low, [min(c) for c in choices])
    np.testing.assert_array_equal(high, [max(c) for c in choices])
    np.testing.assert_allclose(lines(axes)['mean'].get_ydata(), [np.mean(c) for c in choices])


def test_stages_of_a_row_compare():
    steps = space_steps(resolution=[192, 224])
    figure = draw_space_steps(steps)
    found, _ = panels(figure, steps)
    figure.draw_without_rendering()
    for name, label in zip(NAMES, ['number of blocks', *NAMES[1:]]):
        row = [axes for path, axes in found.items() if path.endswith(f'.{name}')]
        assert len(row) == 4 and len({axes.get_ylim() for axes in row}) == 1
        assert [axes.get_ylabel() for axes in row] == [label, '', '', '']
        assert [axes.yaxis.get_tick_params()['labelleft'] for axes in row] == [True, False, False, False]
        values = np.concatenate([lines(axes)['choice'].get_ydata() for axes in row])
        assert row[0].get_ylim()[0] < values.min() and values.max() < row[0].get_ylim()[1]
    titles = [axes.get_title(loc='left') for axes in figure.axes]
    assert list(filter(None, titles)) == ['Stage 1', 'Stage 2', 'Stage 3', 'Stage 4', 'Whole network']
    assert [axes.get_xlabel() for axes in figure.axes] == [''] * 16 + ['step'] * 5
    assert set(figure.axes[-1].get_xticks()) >= {0, 1, 2, 3}
    assert texts(figure.legends[0]) == ['choice', 'lowest and highest', 'mean']


def test_ticks_are_the_choices_where_they_are_few():
    steps = space_steps(1)
    found, _ = panels(draw_space_steps(steps), steps)
    for path, expected in (('stages[0].embed_dim', '224 256 288'), ('stages[0].block.mlp_ratio', '3 3.5 4')):
        assert [label.get_text() for label in found[path].get_yticklabels()] == expected.split()


def test_one_step_has_no_lines():
    figure = draw_space_steps(space_steps(1))
    assert all(len(axes.get_lines()) == 1 for axes in figure.axes)
    assert texts(figure.legends[0]) == ['choice']


def test_words_and_uneven_numbers():
    figure = draw_space_steps([SpaceStep(SMALL_SPACES['last'], ())] * 2)
    axes = {axes.get_ylabel(): axes for axes in figure.axes}
    assert [label.get_text() for label in axes['op'].get_yticklabels()] == ['a', 'b']
    np.testing.assert_array_equal(lines(axes['op'])['choice'].get_data(), [[0, 0, 1, 1], [0, 1, 0, 1]])
    assert list(lines(axes['op'])) == ['choice']
    np.testing.assert_allclose(lines(axes['number of blocks'])['mean'].get_ydata(), [4 / 3, 4 / 3])  # of 0, 1 and 3


@pytest.mark.parametrize('name', [*SPACES, *SMALL_SPACES])
def test_every_space_is_drawn(name):
    space = {**SPACES, **SMALL_SPACES}[name]
    step = SpaceStep(space, ())
    try:
        dimensions = stage_dimensions(space)
    except SpaceError:
        with pytest.raises(SpaceError, match='offer different options'):
            draw_space_steps([step])
        return
    figure = draw_space_steps([step, step])
    assert len(figure.axes) == len(dimensions)
    check_layout(figure)


def test_long_names_stay_in_their_row():
    stage = dict(depth=2, block={f'{letter}_very_long_name_of_a_dimension': [1, 2] for letter in 'abc'})
    step = SpaceStep(SearchSpace.from_dict(dict(family='toy', stages=[stage] * 2)), ())
    check_layout(draw_space_steps([step]))


# how the errors are distributed


def test_distribution_of_the_errors_of_every_step():
    steps = space_steps(3)
    figure = draw_error_distribution(steps)
    axes = figure.axes[0]
    assert texts(figure.legends[0]) == [f'step {i}, E-T {step.quality.et_error:.1f} %' for i, step in enumerate(steps)]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ('error (%)', 'cumulative fraction of architectures')
    assert len({line.get_color() for line in axes.get_lines()}) == 3
    for line, step in zip(axes.get_lines(), steps):
        errors = [sample.error for sample in step.samples]
        x, y = line.get_data()
        assert line.get_drawstyle() == 'steps-post' and (x[0], y[0]) == (min(errors), 0)
        np.testing.assert_allclose(y[1:], share_at_most(errors, x[1:]))
        assert len(x) == len(errors) + 1 and y[-1] == 1


def test_distribution_of_the_errors_by_choice():
    step = space_steps(2, 300)[1]
    figure = draw_choice_distribution(step)
    *stages, top = figure.axes
    assert [axes.get_title(loc='left') for axes in stages] == ['Stage 1', 'Stage 2', 'Stage 3', 'Stage 4']
    assert top.get_title(loc='left') == 'Top-tier error'
    assert (top.get_xlabel(), top.get_ylabel()) == ('number of blocks', 'error (%)')
    for s, axes in enumerate(stages):
        depths = step.space.stages[s].depths
        assert texts(axes.get_legend()) == list(map(str, depths))
        tops = []
        for depth in depths:
            errors = sorted(sample.error for sample in step.samples if sample.arch.stages[s].depth == depth)
            x, y = lines(axes)[str(depth)].get_data()
            np.testing.assert_allclose(x, [errors[0], *errors])
            np.testing.assert_allclose(y, np.arange(len(errors) + 1) / len(errors))
            tops.append(np.mean(errors[:50]))
        np.testing.assert_allclose(lines(top)[f'Stage {s + 1}'].get_data(), [depths, tops])
    assert len({axes.get_xlim() for axes in stages}) == 1
    assert texts(top.get_legend()) == ['Stage 1', 'Stage 2', 'Stage 3', 'Stage 4']


def test_blocks_that_choose_by_themselves_count_each():
    step = space_steps(1, 20)[0]
    axes = draw_choice_distribution(step, 'num_heads').axes[0]
    blocks = sum(sample.arch.stages[0].depth for sample in step.samples)
    assert sum(len(line.get_xdata()) - 1 for line in axes.get_lines()) == blocks
    assert axes.get_legend().get_title().get_text() == 'num_heads'


def test_a_choice_that_no_sample_has_is_only_named():
    step = space_steps(1, 100)[0]
    kept = tuple(sample for sample in step.samples if sample.arch.stages[1].depth != 3)
    *stages, top = draw_choice_distribution(dataclasses.replace(step, samples=kept)).axes
    assert texts(stages[1].get_legend()) == ['2', '3 (none)', '4']
    assert len(lines(stages[1])['3 (none)'].get_xdata()) == 0
    assert list(lines(top)['Stage 2'].get_xdata()) == [2, 4]
    assert list(lines(top)['Stage 1'].get_xdata()) == [2, 3, 4]


def test_choices_of_the_whole_network_and_words():
    space = SMALL_SPACES['last']
    samples = tuple(Sample(arch, float(i)) for i, arch in enumerate(space.iterate()))
    network, top = draw_choice_distribution(SpaceStep(space, samples), 'size').axes
    assert network.get_title(loc='left') == 'Whole network' and texts(network.get_legend()) == ['8', '16']
    assert list(lines(top)['Whole network'].get_xdata()) == [8, 16]
    top = draw_choice_distribution(SpaceStep(space, samples), 'op').axes[-1]
    assert [label.get_text() for label in top.get_xticklabels()] == ['a', 'b']
    with pytest.raises(VitnasError, match="no dimension 'head' to draw; the space has size, width, depth, op, k"):
        draw_choice_distribution(SpaceStep(space, samples), 'head')


# all of them

FIGURES = {
    'steps': draw_space_steps,
    'errors': draw_error_distribution,
    'first': lambda steps: draw_choice_distribution(steps[0]),
    'last': lambda steps: draw_choice_distribution(steps[-1], 'num_heads'),
}


@pytest.mark.parametrize('name', FIGURES)
@pytest.mark.parametrize(
    ('count', 'num_samples', 'stages'), [(1, 1, 1), (3, 1, 2), (4, 60, 4), (2, 60, 7), (10, 40, 9)]
)
def test_layout_of_few_and_many(name, count, num_samples, stages):
    check_layout(FIGURES[name](space_steps(count, num_samples, stages, resolution=[192, 224, 256])))


@pytest.mark.parametrize('name', FIGURES)
@pytest.mark.parametrize('error', [0.0, 31.25, 100.0])
def test_equal_errors(name, error):
    check_layout(FIGURES[name]([with_errors(step, [error] * 30) for step in space_steps(2, 30, 2)]))


@pytest.mark.parametrize('name', FIGURES)
def test_same_input_same_bytes(name, tmp_path):
    for file in ('a.png', 'b.png'):
        save_png(FIGURES[name](space_steps(2, 30, 2)), tmp_path / file, dpi=60)
    assert (tmp_path / 'a.png').read_bytes() == (tmp_path / 'b.png').read_bytes()
    first, second = (inline_svg(FIGURES[name](space_steps(2, 30, 2)), 'x', 'label') for _ in range(2))
    assert first == second
