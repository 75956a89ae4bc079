"""Training curves: one panel per metric, repeated rows, and malformed files."""

import pytest

from tests.test_visualization.made import report_csv
from vitnas_core.errors import VitnasError
from vitnas_core.visualization import draw_training


@pytest.fixture
def path(tmp_path):
    return tmp_path / 'supernet_report.csv'


def test_a_panel_a_metric_with_every_curve(path):
    path.write_text(report_csv())
    figure = draw_training(path)
    assert [axes.get_title(loc='left') for axes in figure.axes] == ['accuracy/top1', 'loss']
    curves = {line.get_label(): line for line in figure.axes[0].get_lines()}
    assert list(curves['largest'].get_xdata()) == [5, 10, 15]
    assert list(curves['largest'].get_ydata()) == [78, 83, 88]
    assert list(curves['smallest'].get_ydata()) == [72, 77, 82]
    assert len(curves) == 4  # and two random ones
    band = figure.axes[0].collections[0].get_datalim(figure.axes[0].transData)
    assert (band.ymin, band.ymax) == (75, 86)
    assert figure.axes[0].get_xlabel() == 'epoch'
    assert [t.get_text() for t in figure.legends[0].get_texts()] == [
        'range of random ones', 'random', 'largest', 'smallest'
    ]  # fmt: skip


def test_iterations_where_epochs_do_not_tell_the_rows_apart(path):
    path.write_text('epoch,iter,name,metric,value\n0,100,largest,a,1\n0,200,largest,a,2\n')
    axes = draw_training(path).axes[0]
    assert axes.get_xlabel() == 'iteration' and list(axes.get_lines()[0].get_xdata()) == [100, 200]


def test_rows_measured_again_and_values_that_are_not_finite(path):
    rows = ['1,10,largest,a,1', '2,20,largest,a,2', '2,20,largest,a,7', '3,30,largest,a,nan']
    path.write_text('epoch,iter,name,metric,value\n' + '\n'.join(rows) + '\n')
    assert list(draw_training(path).axes[0].get_lines()[0].get_ydata()) == [1, 7]


@pytest.mark.parametrize(
    ('text', 'message'),
    [
        (None, 'cannot be read as a supernet report: .*No such file'),
        ('', 'should have the columns epoch, iter, name, metric, value, but lacks epoch'),
        ('epoch,iter,name,metric\n', 'but lacks value'),
        ('epoch,iter,name,metric,value\n', 'holds no measurement'),
        ('epoch,iter,name,metric,value\n1,10,largest,a,1\n1,1', r'csv:3 should hold numbers for epoch, iter and value'),
        ('epoch,iter,name,metric,value\n1,10,largest,a,x\n', r'csv:2 should hold numbers'),
    ],
)
def test_malformed_tables_are_refused(path, text, message):
    if text is not None:
        path.write_text(text)
    with pytest.raises(VitnasError, match=message):
        draw_training(path)
