"""The progress hook: a bar in a terminal, one line per tenth elsewhere."""

import io
import sys
from types import SimpleNamespace

import pytest

from vitnas_core.registry import HOOKS
from vitnas_core.training.hooks import ProgressHook


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def run(done: int = 0) -> None:
    hook, runner = HOOKS.build(dict(type='vitnas.ProgressHook')), SimpleNamespace(max_iters=20, iter=done)
    assert isinstance(hook, ProgressHook)
    hook.before_train(runner)
    for runner.iter in range(done, 20):
        hook.after_train_iter(runner, 0)
    hook.after_train(runner)


def test_lines_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, 'stdout', out := io.StringIO())
    run()
    assert out.getvalue().splitlines() == [f'{i} of 20 iterations' for i in range(2, 21, 2)]


@pytest.mark.parametrize('done', [0, 15])
def test_a_bar_in_a_terminal_that_goes_on_where_training_does(monkeypatch: pytest.MonkeyPatch, done: int) -> None:
    monkeypatch.setattr(sys, 'stdout', out := Terminal())
    run(done)
    updates = out.getvalue().split('\r')
    assert '20/20' in updates[-1]
    assert sum(f'{i}/20' in out.getvalue() for i in range(done + 1, 21)) == 20 - done
    assert out.getvalue().endswith('\n')
