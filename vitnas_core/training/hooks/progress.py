"""A progress bar for training in a terminal."""

from __future__ import annotations

import sys
from typing import Any

from mmengine.dist import is_main_process
from mmengine.hooks import Hook
from mmengine.runner import Runner
from mmengine.utils import ProgressBar

from ...registry import HOOKS


@HOOKS.register_module()
class ProgressHook(Hook):
    """Show one bar over all iterations instead of log lines, for short runs in a terminal."""

    priority = 'VERY_LOW'

    def before_train(self, runner: Runner) -> None:
        """Draw the bar: empty, or where a resumed training is."""
        self.bar = ProgressBar(runner.max_iters, start=False, file=sys.stdout)
        if is_main_process() and sys.stdout.isatty():
            self.bar.start()
            self.bar.completed = runner.iter

    def after_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
        """Advance by one iteration. Without a terminal, print a line after every tenth of the training."""
        done = runner.iter + 1
        if is_main_process() and sys.stdout.isatty():
            self.bar.update()
        elif is_main_process() and done % max(1, runner.max_iters // 10) == 0:
            print(f'{done} of {runner.max_iters} iterations', flush=True)

    def after_train(self, runner: Runner) -> None:
        """End the line of the bar."""
        if is_main_process() and sys.stdout.isatty():
            print()
