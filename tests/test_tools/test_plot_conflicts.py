"""``tools/analysis/plot_conflicts.py``: a picture and a table of a training's conflicts."""

from pathlib import Path

import pytest

from tools.analysis import plot_conflicts
from vitnas_core.errors import VitnasError


def test_picture_and_table(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    rows = ['iter,layer,cosine', '0,backbone.stem,0.5', '0,head.fc,-0.5', '5,backbone.stem,-0.1', '5,head.fc,-0.25']
    (tmp_path / 'conflicts.csv').write_text('\n'.join(rows) + '\n5,torn')
    out = tmp_path / 'new' / 'conflicts.png'
    plot_conflicts.main([str(tmp_path / 'conflicts.csv'), '--out', str(out)])
    first = out.read_bytes()
    assert first.startswith(b'\x89PNG')
    head, _, worst, second, last = capsys.readouterr().out.splitlines()
    assert head.split() == ['layer', 'in', 'conflict', 'mean', 'cosine']
    assert worst.split() == ['head.fc', '100%', '-0.375'] and second.split() == ['backbone.stem', '50%', '+0.200']
    assert last == f'Picture: {out}'
    plot_conflicts.main([str(tmp_path / 'conflicts.csv'), '--out', str(out)])
    assert out.read_bytes() == first


def test_files_that_do_not_do(tmp_path: Path) -> None:
    path = tmp_path / 'conflicts.csv'
    with pytest.raises(VitnasError, match='cannot be read as a table of conflicts'):
        plot_conflicts.main([str(path)])
    path.write_text('iter,layer,cosine\n')
    with pytest.raises(VitnasError, match='conflicts.csv holds no measurement'):
        plot_conflicts.main([str(path)])
