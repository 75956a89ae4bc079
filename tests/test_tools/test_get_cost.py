"""``tools/analysis/get_cost.py`` prints its documented output."""

from pathlib import Path

import pytest

from tools.analysis import get_cost
from vitnas_core import zoo


def test_the_whole_zoo(capsys: pytest.CaptureFixture) -> None:
    get_cost.main([])
    out = capsys.readouterr().out
    for name in zoo.arch_names():
        line = next(line for line in out.splitlines() if line.startswith(f'{name} '))
        assert f'{zoo.entry(name).params:,}' in line and f'{zoo.entry(name).macs:,}' in line


def test_a_file_at_another_shape(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / 'mine.json').write_text(zoo.load_arch('autoformer-tiny').to_json())
    get_cost.main([str(tmp_path / 'mine.json'), '--shape', '800', '1344', '--num-classes', '0'])
    out = capsys.readouterr().out
    assert '800 x 1344' in out and f'{5_867_944 - 193_000:,}' in out


def test_the_image_is_the_one_that_is_priced(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """NASViT's classifiers resize whatever they are given."""
    (tmp_path / 'mine.json').write_text(zoo.load_arch('nasvit-a1').to_json())
    for ref, more in (('nasvit-a1', []), (str(tmp_path / 'mine.json'), []), ('nasvit-a1', ['--shape', '224'])):
        get_cost.main([ref, *more])
        line = capsys.readouterr().out.splitlines()[-1]
        assert '192 x 192' in line and f'{zoo.entry("nasvit-a1").macs:,}' in line


def test_mistakes(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit, match='ArchError: .*neither a file nor an architecture of the zoo'):
        get_cost.main(['autoformer-giant'])
    (tmp_path / 'other.json').write_text('{"family": "toy", "stages": []}')
    with pytest.raises(
        SystemExit,
        match=r'family is toy; there is a backbone for autoformer, .*vitas_twins.* --custom-imports \(.*other.json\)',
    ):
        get_cost.main([str(tmp_path / 'other.json')])
    with pytest.raises(SystemExit):
        get_cost.main(['--shape', '0'])
    assert '--shape should be a side, or height and width' in capsys.readouterr().err
