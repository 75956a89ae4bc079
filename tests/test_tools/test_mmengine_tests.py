"""The comparison of mmengine's own test results finds changes."""

import sys
from pathlib import Path

import pytest

from tools.benchmarks import mmengine_tests

TESTS = """
import sys

def test_same(): pass
def test_fails(): assert False
def test_broken(): assert 'vitnas_core' not in sys.modules
def test_repaired(): assert 'vitnas_core' in sys.modules
"""


def test_outcomes_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / 'tests' / 'test_runner'
    folder.mkdir(parents=True)
    (folder / 'test_made_up.py').write_text(TESTS)
    (folder / 'test_torn.py').write_text('import nothing_of_this_name\n')
    monkeypatch.setattr(sys, 'argv', ['mmengine_tests.py', str(tmp_path)])
    assert mmengine_tests.main() == 1
    said = capsys.readouterr().out
    assert 'without vitnas  3 failed, 2 passed' in said and 'with vitnas     3 failed, 2 passed' in said
    broken, repaired = said.split('only with vitnas')
    assert 'broken by vitnas: 1' in broken and broken.endswith('test_broken\n')
    assert repaired.startswith(': 1') and repaired.endswith('test_repaired\n')
    monkeypatch.setattr(sys, 'argv', ['mmengine_tests.py', str(folder)])
    with pytest.raises(SystemExit):
        mmengine_tests.main()
