"""``CountedLoop``: base of training loops, which count epochs and iterations."""

from __future__ import annotations

from mmengine.runner import BaseLoop


class CountedLoop(BaseLoop):
    """A loop that counts epochs and iterations as mmengine's hooks read them.

    Subclasses set the totals. A resume sets ``_epoch`` and ``_iter``.
    """

    _max_epochs = 1  # of a training by iterations, as in mmengine
    _max_iters: int
    _epoch = 0
    _iter = 0

    @property
    def max_epochs(self) -> int:
        """Total epochs; 1 if the training is counted by iterations."""
        return self._max_epochs

    @property
    def max_iters(self) -> int:
        """Total iterations."""
        return self._max_iters

    @property
    def epoch(self) -> int:
        """The current epoch."""
        return self._epoch

    @property
    def iter(self) -> int:
        """The current iteration."""
        return self._iter
