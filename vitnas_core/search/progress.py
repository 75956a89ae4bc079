"""The progress bar of a search."""

from __future__ import annotations

import sys

from mmengine.utils import ProgressBar


class SearchBar:
    """mmengine's bar over all candidates with the generation and the best score behind it; silent off a terminal.

    Args:
        total: How many candidates there will be.
        shown: Whether this process shows it; only one of several should.
    """

    def __init__(self, total: int, shown: bool) -> None:
        self._bar = ProgressBar(total, bar_width=20, start=False) if shown and sys.stdout.isatty() else None
        if self._bar is not None:
            self._bar.file = sys.stdout
            self._bar.start()

    def show(self, done: int, text: str) -> None:
        """Move to ``done`` candidates."""
        if self._bar is not None and done > self._bar.completed:
            self._bar.update(done - self._bar.completed)
            self._bar.file.write(f', {text} ')
            self._bar.file.flush()

    def break_line(self) -> None:
        """Leave the line of the bar, so that what is printed next does not run into it."""
        if self._bar is not None:
            self._bar.file.write('\n')
            self._bar.file.flush()
