"""The quickstart, short: every step writes its files, the table is right, and a second start repeats nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from tools import quickstart
from vitnas_core import zoo
from vitnas_core.backbones import AutoFormer


def test_quickstart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setattr(quickstart, 'NUM_RANDOM', 3)
    rows = quickstart.main(['--epochs', '2', '--seed', '1', '--work-dir', str(tmp_path)])
    folder = tmp_path / 'seed1'
    for name in ('best_arch.json', 'history.jsonl', 'pareto.json', 'pareto.png', 'report.html'):
        assert (folder / 'search' / name).stat().st_size > 0
    assert (folder / 'subnet/weights.safetensors').is_file() and (folder / 'supernet/supernet_report.csv').is_file()

    assert [row['name'] for row in rows] == ['largest', 'smallest', 'random, 3 of the same budget', 'searched']
    largest, smallest, random, searched = rows
    assert smallest['macs'] < searched['macs'] <= 2e6 < largest['macs']
    assert 1.8e6 <= random['macs'] <= 2e6
    arch = zoo.load_arch(folder / 'search/best_arch.json')
    assert zoo.load_arch(folder / 'subnet/arch.json') == arch
    cost = AutoFormer.cost(arch, 32, 10, img_size=32, patch_size=8, reach=4)
    assert (searched['macs'], searched['params']) == (cost.macs, cost.params)
    assert all(0 <= row['accuracy'] <= 100 for row in rows)
    out = capsys.readouterr().out
    assert f'{searched["accuracy"]:.1f}%' in out and str(folder / 'search/report.html') in out

    weights = torch.load(folder / 'supernet/epoch_2.pth', weights_only=True)['state_dict']
    before = (folder / 'search/history.jsonl').read_text()
    assert quickstart.main(['--epochs', '2', '--seed', '1', '--work-dir', str(tmp_path)]) == rows
    again = torch.load(folder / 'supernet/epoch_2.pth', weights_only=True)['state_dict']
    assert all(torch.equal(again[name], tensor) for name, tensor in weights.items())
    assert (folder / 'search/history.jsonl').read_text() == before
    assert json.loads((folder / 'quickstart.json').read_text()) == rows


def test_a_mistake(capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit):
        quickstart.main(['--epochs', '0'])
    assert '--epochs should be at least 1, but got 0' in capsys.readouterr().err
