"""The progress bar of a search."""

from __future__ import annotations

import sys

from mmengine.utils import ProgressBar


class SearchBar:
    """mmengine's bar over all candidates, followed by the generation and the best score; silent off a terminal.

    Args:
        total: Total number of candidates.
        shown: Whether this process shows the bar; only one of several should.
    """

    def __init__(self, total: int, shown: bool) -> None:
        self._bar = ProgressBar(total, bar_width=20, start=False) if shown and sys.stdout.isatty() else None
        if self._bar is not None:
            self._bar.file = sys.stdout
            self._bar.start()

    def add(self, count: int, text: str) -> None:
        """Advance by some candidates."""
        if self._bar is not None:
            self._bar.update(min(count, self._bar.task_num - self._bar.completed))
            self._bar.file.write(f', {text} ')
            self._bar.file.flush()

    def end_round(self, done: int) -> None:
        """Correct the number of candidates, and end the line so that the next output does not run into it."""
        if self._bar is not None:
            self._bar.completed = done
            self._bar.file.write('\n')
            self._bar.file.flush()
