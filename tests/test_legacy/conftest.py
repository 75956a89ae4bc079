"""Runners without slow parts that no test needs."""

import pytest

from tests.test_search.conftest import _quick_runners  # noqa: F401


@pytest.fixture(autouse=True)
def _no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures and reports are made anew from what is compared here."""
    for name in ('draw_pareto', 'draw_predictor', 'save_png', 'write_report'):
        monkeypatch.setattr(f'vitnas_core.visualization.{name}', lambda *args, **kwargs: None)
