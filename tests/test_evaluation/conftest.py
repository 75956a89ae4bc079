"""Runners without slow parts that no test needs."""

import pytest
from mmengine.runner import Runner


@pytest.fixture(autouse=True)
def _quick_runners(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Runner, '_log_env', lambda *_: None)  # asks every compiler for its version
    monkeypatch.setattr(
        'mmengine.config.config.FormatCode', lambda text, **_: (text, True)
    )  # lays out the dumped config
