"""The report of a search: well-formed, self-contained, safe with hostile strings, the same bytes each time."""

import dataclasses
import html.parser
import json
import re

import pytest

from tests.families import SPACES
from tests.test_visualization.made import METRIC, report_csv, search
from vitnas_core.errors import VitnasError
from vitnas_core.spaces import Arch
from vitnas_core.visualization import write_report
from vitnas_core.visualization.report import arch_text

VOID = {'meta', 'br', 'hr', 'img', 'link', 'input'}
HOSTILE = '<script>alert(1)</script>"\'&<img src=x onerror=alert(2)>$\\frac\x00\ud800'


class Page(html.parser.HTMLParser):
    """Reads a page and fails on what is not well formed."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.ids, self.attributes, self.words = [], [], [], [], []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        self.ids += [value for name, value in attrs if name == 'id']
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if 'style' not in self.open:
            self.words.append(data)


def write(folder, **changes):
    training = folder / 'supernet_report.csv'
    training.write_text(report_csv())
    arguments = search() | dict(
        title='Digits, evolution',
        settings={'space': 'digits', 'seed': '0'},
        constraint={'macs': (None, 5.2e6), 'params': (None, 3e5)},
        metric=METRIC,
        training_csv=training,
        baselines=[('largest', 90.0, {'macs': 6e6, 'params': 4e5}), ('random', 80.0, {'macs': 3e6})],
    )
    path = folder / 'report.html'
    write_report(path, **arguments | changes)
    return path.read_text()


@pytest.fixture(scope='module')
def text(tmp_path_factory):
    return write(tmp_path_factory.mktemp('report'))


def test_page_is_well_formed_and_alone(text):
    page = Page(text)
    assert page.tags.count('svg') == 5  # Pareto, progress, winner, params, training
    assert not {'script', 'link', 'img', 'iframe', 'object'} & set(page.tags)
    assert 'http' not in text and '@import' not in text
    references = [v for k, v in page.attributes if k in ('href', 'xlink:href', 'src', 'action')]
    assert references and all(v.startswith(('#', 'data:image/png;base64,')) for v in references)
    assert all(v.startswith('#') for v in re.findall(r'url\(([^)]*)\)', text))


def test_ids_do_not_clash_and_every_reference_has_its_target(text):
    page = Page(text)
    assert len(page.ids) == len(set(page.ids)) > 5
    used = {v[1:] for k, v in page.attributes if k == 'href' and v[0] == '#'} | set(
        re.findall(r'url\(#([^)]*)\)', text)
    )
    assert used == set(page.ids)


def test_style_of_a_picture_does_not_leak_into_the_page(text):
    assert Page(text).tags.count('style') == 1


def test_what_it_says(text):
    data, words = search(), ' '.join(Page(text).words)
    best = data['best']
    for shown in (
        'Digits, evolution',
        'MACs at most 5.20 M, Parameters at most 300.0 k',
        f'{best.score:.2f} %',
        f'{best.cost["macs"] / 1e6:.2f} M',
        f'{best.cost["latency"] * 1e3:.2f} ms',
        'candidates evaluated, 6 of them in part',
        '30.0 s',
        f'Candidate {best.id}: {best.score:.2f} %',
        f'{90 - best.score:+.2f}'.replace('-', '−'),
        f'Pareto front of score and MACs ({len(data["front"])})',
        'The best 20',
    ):
        assert shown in words, shown
    assert text.count('<tr class=mark>') == 3  # the winner among the baselines, in the front and among the best


def test_listed_architectures_can_be_copied(text):
    found = [html.unescape(t) for t in re.findall(r'<pre>(.*?)</pre>', text, re.DOTALL)]
    data = search()
    top = sorted((c for c in data['candidates'] if c.complete), key=lambda c: -c.score)[:20]
    assert [Arch.from_json(t) for t in found] == [c.arch for c in [*data['front'], *top]]


@pytest.mark.parametrize('name', SPACES)
def test_text_of_an_architecture_is_its_json(name, rng):
    for arch in (SPACES[name].sample(rng), SPACES[name].smallest()):
        assert json.loads(arch_text(arch)) == arch.to_dict()


def test_same_input_same_bytes(text, tmp_path):
    assert write(tmp_path) == text


def test_hostile_strings_stay_text(tmp_path):
    data = search(8)
    stages = [{HOSTILE: HOSTILE, 'blocks': [{'op': HOSTILE}]}]
    arch = Arch.from_dict({'family': HOSTILE, 'stages': stages, 'size': 3})
    data = {key: [dataclasses.replace(c, arch=arch) for c in data[key]] for key in ('candidates', 'front')}
    csv_path = tmp_path / 'x.csv'
    csv_path.write_text(report_csv(metrics=('<u>loss</u>$x',)))
    text = write(
        tmp_path,
        **data,
        best=data['front'][-1],
        title=HOSTILE,
        settings={HOSTILE: HOSTILE},
        metric=HOSTILE[:-1],
        training_csv=csv_path,
        baselines=[(HOSTILE, 80.0, {'macs': 3e6})],
    )
    page = Page(text)
    assert not {'script', 'img', 'u'} & set(page.tags)
    assert not [k for k, _ in page.attributes if k.startswith('on')]
    assert '<script>alert(1)</script>' in ''.join(page.words)
    assert '\x00' not in text


def test_without_what_is_optional(tmp_path):
    data = search(1, 1)
    text = write(tmp_path, **data, constraint=None, training_csv=None, baselines=(), settings={}, metric='score')
    page = Page(text)
    assert page.tags.count('svg') == 3  # Pareto, progress, winner
    assert 'Limits of the search: none.' in page.words and 'Compared with' not in page.words


def test_every_cost_with_a_limit_has_its_picture(tmp_path):
    text = write(tmp_path, constraint={'latency': (None, 0.004)})
    assert '>Latency (ms)<' in text and '>MACs (M)<' in text and '>Parameters (k)<' not in text


def test_many_candidates_stay_light(tmp_path):
    sizes = {count: len(write(tmp_path, **search(count, 20))) for count in (1000, 2500)}
    assert sizes[1000] < 1_000_000 and sizes[2500] < 1_000_000


def test_nothing_is_written_where_the_curves_are_malformed(tmp_path):
    (tmp_path / 'bad.csv').write_text('a,b\n')
    with pytest.raises(VitnasError, match='bad.csv should have the columns'):
        write(tmp_path, training_csv=tmp_path / 'bad.csv')
    assert not (tmp_path / 'report.html').exists()
