"""The report of a space search: well-formed, complete, and safe with hostile strings."""

import dataclasses
import html
import re

import numpy as np
import pytest

from tests.test_visualization import test_browser as browser
from tests.test_visualization.test_report import HOSTILE, Page
from tests.test_visualization.test_space import space_steps, with_errors
from vitnas_core.search.space_quality import Sample, SpaceEvolution, SpaceStep
from vitnas_core.spaces import SearchSpace
from vitnas_core.visualization import write_space_report


def write(folder, **changes):
    arguments = dict(
        title='Digits, space search',
        steps=space_steps(3, 60),
        settings={'space': 's3', 'seed': '0'},
        constraint={'macs': (None, 5.2e6), 'params': (None, 3e5)},
        links=[('Search in the last space', 'search/report.html')],
    )
    path = folder / 'space_report.html'
    write_space_report(path, **arguments | changes)
    return path.read_text()


@pytest.fixture(scope='module')
def text(tmp_path_factory):
    return write(tmp_path_factory.mktemp('report'))


def rows(text):
    """The cells of every table row."""
    found = re.findall('<tr.*?</tr>', text)
    return [[html.unescape(cell) for cell in re.findall('<t[dh]>(.*?)</t[dh]>', row)] for row in found]


def test_page_is_well_formed_and_alone(text):
    page = Page(text)
    assert page.tags.count('svg') == 4  # choices, errors, blocks of the first and of the last step
    assert page.tags.count('style') == 1 and not {'script', 'link', 'img', 'iframe', 'object'} & set(page.tags)
    assert 'http' not in text and '@import' not in text
    inner = {v[1:] for k, v in page.attributes if k == 'href' and v[0] == '#'}
    assert len(page.ids) == len(set(page.ids)) > 5
    assert inner | set(re.findall(r'url\(#([^)]*)\)', text)) == set(page.ids)
    assert [v for k, v in page.attributes if k == 'href' and v[0] != '#'] == ['search/report.html']


def test_what_it_says(text):
    steps, words = space_steps(3, 60), ' '.join(Page(text).words)
    first, last = steps[0].quality.et_error, steps[-1].quality.et_error
    for shown in (
        'Digits, space search',
        'Limits of the architectures: MACs at most 5.20 M, Parameters at most 300.0 k.',
        f'{last:.2f} % E-T error of the last space',
        f'{first:.2f} % E-T error of the first space',
        f'{last - first:+.2f} change, in points'.replace('-', '−'),
        '3 spaces',
        '180 architectures evaluated',
        'Errors by number of blocks, step 0',
        'Errors by number of blocks, step 2',
        'Search in the last space',
    ):
        assert shown in words, shown
    assert text.index('last space') < text.index('first space')


def test_table_of_the_spaces(text):
    steps, found = space_steps(3, 60), rows(text)
    start = found.index(['step', 'size', 'drawn', 'expected', 'top-tier', 'E-T error'])
    for i, step in enumerate(steps):
        number, size, count, *errors = found[start + 1 + i]
        quality = step.quality
        assert (number, count) == (str(i), '60')
        np.testing.assert_allclose(float(size), float(step.space.size()), rtol=0.05)
        assert errors == [f'{e:.2f}' for e in (quality.expected, quality.top, quality.et_error)]
    assert text.count('<tr class=mark>') == 1


def test_sizes_that_no_float_holds(tmp_path):
    steps = []
    for depth in ([2], [4, 5], [1000]):
        stage = dict(depth=depth, block=dict(num_heads=[1, 2], mlp_ratio=[3, 4]))
        space = SearchSpace.from_dict(dict(family='s3', stages=[stage]))
        steps.append(SpaceStep(space, (Sample(space.smallest(), 30.0),)))
    found = rows(write(tmp_path, steps=steps, settings={}))
    assert [row[1] for row in found[1:]] == ['16', '1,280', '1.1e602']


def test_tables_of_the_tendencies(text):
    steps, found = space_steps(3, 60), rows(text)
    starts = [i for i, row in enumerate(found) if row[0] == 'dimension']
    assert len(starts) == 2  # the last space has none
    for start, step in zip(starts, steps):
        listed = [t for t in step.tendencies if t.steps or t.slope]
        moved = [t for t in listed if t.steps]
        assert moved and len(moved) < len(listed)
        for tendency, row in zip(listed, found[start + 1 :]):
            assert row[0] == tendency.dimension.path
            assert row[1] == ', '.join(f'{value:g}' for value in tendency.dimension.options)
            assert row[2] == ', '.join(f'{quality.et_error:.2f}' for quality in tendency.qualities)
            np.testing.assert_allclose(float(row[3].replace('−', '-')), tendency.slope, rtol=0.01)
            done, _, wanted = row[4].replace('−', '-').partition(' (')
            assert int(done) == tendency.steps
            assert wanted == (f'{tendency.wanted:+d} wanted)' if tendency.wanted != tendency.steps else '')
            after = ', '.join(f'{value:g}' for value in tendency.moved)
            assert row[5] == (after if tendency.steps else '–')
        assert f'{len(moved)} of {len(step.tendencies)} dimensions moved' in text


def test_dimensions_without_a_slope_are_left_out(tmp_path):
    step = space_steps(1, 60, 2)[0]
    only = SpaceEvolution(dict(depth=1))
    steps = [SpaceStep(step.space, step.samples, only.tendencies(step.space, step.samples)), step]
    found = rows(write(tmp_path, steps=steps))
    paths = [row[0] for row in found if row[0].startswith('stages[')]
    assert paths == [f'stages[{s}].depth' for s in range(2)]
    equal = with_errors(step, [30.0] * 60)
    equal = dataclasses.replace(equal, tendencies=only.tendencies(step.space, equal.samples))
    text = write(tmp_path, steps=[equal, equal])
    assert '0 of 10 dimensions moved' in text and 'No dimension has a slope.' in text
    assert not [row for row in rows(text) if row[0] == 'dimension']


def test_a_choice_without_samples_has_a_dash(tmp_path):
    step = space_steps(1, 60, 2)[0]
    few = tuple(sample for sample in step.samples if sample.arch.stages[0].depth != 3)
    tendencies = SpaceEvolution(dict(depth=1)).tendencies(step.space, few)
    found = rows(write(tmp_path, steps=[SpaceStep(step.space, few, tendencies), step]))
    errors = next(row[2] for row in found if row[0] == 'stages[0].depth')
    assert re.fullmatch(r'\d+\.\d\d, –, \d+\.\d\d', errors)


def test_one_space_of_one_sample(tmp_path):
    text = write(tmp_path, steps=space_steps(1, 1, 1), constraint=None, settings={}, links=())
    page = Page(text)
    assert page.tags.count('svg') == 3 and 'a' not in page.tags
    assert 'Limits of the architectures: none.' in page.words
    for word in ('E-T error of the space', 'space', 'architecture evaluated'):
        assert word in page.words
    assert 'change, in points' not in page.words


def test_many_spaces_of_many_stages(tmp_path):
    text = write(tmp_path, steps=space_steps(10, 200, 9, resolution=[192, 224]))
    assert Page(text).tags.count('svg') == 4 and len(text) < 1_500_000


def test_spaces_whose_blocks_are_optional_have_no_picture_of_their_number(tmp_path, rng):
    stage = dict(width=[1, 2], depth=4, optional=[1, 3], block=dict(k=[3, 5]))
    space = SearchSpace.from_dict(dict(family='toy', stages=[stage]))
    samples = tuple(Sample(space.sample(rng), 30.0 + i) for i in range(9))
    text = write(tmp_path, steps=[SpaceStep(space, samples)] * 2)
    assert Page(text).tags.count('svg') == 2 and 'number of blocks' not in text


def test_same_input_same_bytes(text, tmp_path):
    assert write(tmp_path) == text


def test_hostile_strings_stay_text(tmp_path, rng):
    stage = {HOSTILE: [1, 2], 'depth': [1, 2], 'block': {'op': [HOSTILE, 'b'], f'{HOSTILE}x': [3, 5]}}
    space = SearchSpace.from_dict({'family': HOSTILE, 'name': HOSTILE, 'stages': [stage]})
    samples = tuple(Sample(space.sample(rng), float(i)) for i in range(20))
    tendencies = SpaceEvolution({HOSTILE: 1, f'{HOSTILE}x': 1}).tendencies(space, samples)
    text = write(
        tmp_path,
        title=HOSTILE,
        steps=[SpaceStep(space, samples, tendencies), SpaceStep(space, samples)],
        settings={HOSTILE: HOSTILE},
        constraint={HOSTILE: (None, 3.0)},
        links=[(HOSTILE, HOSTILE), ('script', 'javascript:alert(1)'), ('spaces', '../step 0/ä#1.html')],
    )
    page = Page(text)
    assert not {'script', 'img'} & set(page.tags) and '\x00' not in text
    assert not [k for k, _ in page.attributes if k.startswith('on')]
    assert '<script>alert(1)</script>' in ''.join(page.words)
    _, script, spaces = (v for k, v in page.attributes if k == 'href' and v[0] != '#')
    assert script == 'javascript%3Aalert%281%29'  # a file of that name beside the page
    assert spaces == '../step%200/%C3%A4%231.html'


@pytest.mark.skipif(browser.BROWSER is None, reason='install chromium to see the report in a real browser')
@pytest.mark.parametrize('stages', [1, 4, 9])
def test_nothing_is_wider_than_the_page_in_a_browser(tmp_path, stages):
    long = 'work_dirs/' + 'very_long_name_' * 12
    steps = space_steps(3, 60, stages, resolution=[192, 224])
    page = write(tmp_path, steps=steps, title=long, settings={'checkpoint': long, long: 'x'}, links=[(long, long)])
    frames = tmp_path / 'frames.html'
    frames.write_text(browser.FRAMES.format(page=html.escape(page)))
    title = re.search('<title>(.*?)</title>', browser.browse(tmp_path, frames, '--dump-dom'))
    assert title
    measured = [tuple(map(int, part.split())) for part in title[1].split(', ')]
    assert [width for _, width, _ in measured] == [400, 1200]
    for needed, width, drawn in measured:
        assert needed <= width and drawn == 4
