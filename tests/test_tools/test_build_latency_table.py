"""``tools/analysis/build_latency_table.py``: writes a table that predicts, and reports its accuracy."""

from pathlib import Path

import numpy as np
import pytest

from tests.families import FAMILIES
from tools.analysis import build_latency_table as tool
from vitnas_core.errors import VitnasError
from vitnas_core.latency import LatencyTable
from vitnas_core.latency.table import Validation

FAMILY = FAMILIES['autoformer']


@pytest.fixture
def config(tmp_path: Path) -> Path:
    backbone = dict(type='vitnas.AutoFormer', space=FAMILY.space.to_dict(), **FAMILY.settings)
    head = dict(type='mmpretrain.LinearClsHead', num_classes=10, in_channels='auto')
    (tmp_path / 'config.py').write_text(
        f"model = dict(type='mmpretrain.ImageClassifier', backbone={backbone!r}, head={head!r})"
    )
    return tmp_path / 'config.py'


def test_a_table_is_measured(config: Path, capsys: pytest.CaptureFixture, rng: np.random.Generator) -> None:
    out = config.parent / 'new' / 'table.json'
    arguments = ['--out', str(out), '--times', '1', '--rounds', '1', '--held-out', '3', '--threads', '1']
    made = tool.main([str(config), *arguments, '--clock', 'cpu', '--input-size', '24', '40', '--batch-size', '2'])
    table = LatencyTable.from_file(out)
    assert table == made and table.predict(FAMILY.space.sample(rng)) > 0
    assert table.setting['input_size'] == [24, 40] and table.setting['batch_size'] == 2
    assert table.setting['threads'] == 1 and table.setting['clock'] == 'cpu'
    text = capsys.readouterr().out
    assert '18 settings of blocks, 3 of stages' in text and str(made.validation) in text
    assert 'visits to architectures' in text


@pytest.mark.parametrize(('spearman', 'said'), [(0.94, True), (float('nan'), True), (0.95, False)])
def test_a_table_that_ranks_badly_is_called_so(
    config: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch, spearman: float, said: bool
) -> None:
    table = LatencyTable('autoformer', {}, 1.0, {}, {}, Validation(9, spearman, 0.1, 0.2, 0.97))
    monkeypatch.setattr(tool, 'measure', lambda *args, **kwargs: table)
    tool.main([str(config), '--out', str(config.parent / 'table.json')])
    assert ('BELOW 0.95: do not rely on the table' in capsys.readouterr().out) == said
    assert (config.parent / 'table.json').is_file()


def test_mistakes(config: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    out = ['--out', str(config.parent / 'table.json')]
    for arguments, message in (
        (['--held-out', '2'], '--held-out should be at least 3'),
        (['--threads', '0'], '--threads should be at least 1'),
        (['--clock', 'cpu', '--threads', '2'], '--clock cpu counts one thread'),
        (['--input-size', '1', '2', '3'], '--input-size should be a side'),
    ):
        with pytest.raises(SystemExit):
            tool.main([str(config), *out, *arguments])
        assert message in capsys.readouterr().err
    monkeypatch.setattr('torch.cuda.is_available', lambda: False)
    with pytest.raises(VitnasError, match='--device is cuda, but torch sees no GPU here'):
        tool.main([str(config), *out, '--device', 'cuda'])
    config.write_text(
        "model = dict(type='mmpretrain.ImageClassifier', backbone=dict(type='mmpretrain.ResNet', depth=18))"
    )
    with pytest.raises(VitnasError, match='the model should hold one elastic backbone'):
        tool.main([str(config), *out])
