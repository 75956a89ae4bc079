"""The report in a real browser: it renders, and nothing is wider than the page."""

import html
import re
import shutil
import subprocess

import matplotlib.image
import numpy as np
import pytest

from tests.test_visualization.test_report import write

BROWSER = next(filter(None, map(shutil.which, ('chromium', 'chromium-browser', 'google-chrome'))), None)
FLAGS = [
    *('--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--hide-scrollbars'),
    *('--disable-background-networking', '--disable-component-update', '--disable-sync'),
]
# A window is at least 500 pixels wide; a frame can be as narrow as a telephone.
FRAMES = """<!DOCTYPE html><title>waiting</title><body>
<iframe width="400" height="900" srcdoc="{page}"></iframe><iframe width="1200" height="900" srcdoc="{page}"></iframe>
<script>
window.onload = () => {{
  document.title = [...document.querySelectorAll('iframe')].map(frame => {{
    const page = frame.contentDocument;
    const drawn = [...page.querySelectorAll('svg')].filter(svg => svg.getBoundingClientRect().height > 100);
    return [page.documentElement.scrollWidth, page.documentElement.clientWidth, drawn.length].join(' ');
  }}).join(', ');
}};
</script>"""

pytestmark = pytest.mark.skipif(BROWSER is None, reason='install chromium to see the report in a real browser')


@pytest.fixture(scope='module')
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp('report')
    long = 'work_dirs/' + 'very_long_name_' * 12
    write(folder, title=long, settings={'checkpoint': long, long: 'x'})
    return folder / 'report.html'


def browse(folder, file, *flags):
    command = [BROWSER, *FLAGS, f'--user-data-dir={folder / "profile"}', *flags, file.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


def test_nothing_is_wider_than_the_page(report, tmp_path):
    frames = tmp_path / 'frames.html'
    frames.write_text(FRAMES.format(page=html.escape(report.read_text())))
    title = re.search('<title>(.*?)</title>', browse(tmp_path, frames, '--dump-dom'))
    assert title
    measured = [tuple(map(int, part.split())) for part in title[1].split(', ')]
    assert [width for _, width, _ in measured] == [400, 1200]
    for needed, width, drawn in measured:
        assert needed <= width and drawn == 5


@pytest.mark.parametrize(('scheme', 'dark'), [(1, False), (0, True)])
def test_page_is_drawn_in_light_and_dark(report, tmp_path, scheme, dark):
    shot = tmp_path / 'shot.png'
    flags = [f'--screenshot={shot}', '--window-size=1200,1200', f'--blink-settings=preferredColorScheme={scheme}']
    browse(tmp_path, report, *flags)
    pixels = matplotlib.image.imread(shot)[..., :3]
    assert pixels.shape == (1200, 1200, 3)
    assert len(np.unique(pixels[::3, ::3].reshape(-1, 3), axis=0)) > 100
    assert (pixels[:10].mean() < 0.3) == dark  # the margin above the heading shows the page's own colour
    white = (pixels > 0.99).all(axis=2).mean()
    assert 0.15 < white < 0.95  # plots lie on white in both
