"""The table and the picture of sharing patterns."""

from pathlib import Path

import pytest
from matplotlib.image import imread

from tools.analysis import plot_sharing
from vitnas_core.elastic import shares
from vitnas_core.visualization import draw_sharing


def test_table_and_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plot_sharing.main(['--groups', '6', '--out', str(tmp_path / 'sharing.png')])
    lines = capsys.readouterr().out.splitlines()
    cells = {line.split()[0]: line.split()[1:] for line in lines if line.strip()}
    assert cells['ordinal'] == ['1', 'to', '6', '42.60', '7.100']
    assert cells['bilateral'] == ['7', 'to', '7', '14.44', '2.407']
    assert cells['cyclic'] == ['3', 'to', '4', '2.00', '0.333']
    assert 'Cyclic runs of 1 to 6 groups begin at group 1 2 4 3 4 1' in lines
    assert imread(tmp_path / 'sharing.png').shape[2] == 4


def test_the_picture_has_what_each_width_uses() -> None:
    figure = draw_sharing(5)
    above = figure.axes[:3]
    assert [axes.get_title(loc='left') for axes in above] == ['ordinal', 'bilateral', 'cyclic']
    for axes, pattern in zip(above, ('ordinal', 'bilateral', 'cyclic')):
        assert (axes.collections[0].get_array().reshape(5, 5) == shares(pattern, 5)).all()
    for axes, pattern in zip(figure.axes[3:], ('ordinal', 'bilateral', 'cyclic')):
        assert [bar.get_height() for bar in axes.containers[0]] == shares(pattern, 5).sum(0).tolist()


@pytest.mark.parametrize('groups', ['1', '17'])
def test_groups_out_of_range(groups: str) -> None:
    with pytest.raises(SystemExit):
        plot_sharing.main(['--groups', groups])
