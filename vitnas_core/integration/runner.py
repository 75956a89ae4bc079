"""Private parts of mmengine's ``Runner`` and hooks: what it loads, what it has not built yet, seeds, averages."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from mmengine.dist import get_rank
from mmengine.hooks import EMAHook
from mmengine.runner import BaseLoop, Runner


def load_from(runner: Runner) -> str | None:
    """Return the checkpoint that weights come from. Loops check it when they are built, before the runner loads it."""
    return getattr(runner, '_load_from', None)


def is_resuming(runner: Runner) -> bool:
    """Return whether the run goes on from its own checkpoint: then all state is wanted, not weights alone."""
    return bool(getattr(runner, '_resume', False))


def has_loaded(runner: Runner) -> bool:
    """Return whether the runner has found something to load; a resume without a checkpoint finds nothing."""
    return bool(getattr(runner, '_has_loaded', False))


def do_not_resume(runner: Runner) -> None:
    """Make the runner load weights only: a search goes on from its journal, not from the epochs of its supernet."""
    runner._resume = False


def train_loop_is_built(runner: Runner) -> bool:
    """Return whether the runner trains; the public ``train_loop`` would build one for a test or a validation, too."""
    return isinstance(getattr(runner, '_train_loop', None), BaseLoop)


def test_dataloader(runner: Runner) -> Any:
    """Return the test data, or their config, None if there are none; the public property would build them."""
    return getattr(runner, '_test_dataloader', None)


def given_seed(runner: Runner) -> int:
    """Return the seed that the config gives, 0 without one; ``runner.seed`` is random then, another in every run."""
    return int(_randomness(runner).get('seed') or 0)


def run_seed(runner: Runner) -> int:
    """Return the seed that all ranks of a run have in common; ``diff_rank_seed`` gives each rank another one."""
    return runner.seed - (get_rank() if _randomness(runner).get('diff_rank_seed', False) else 0)


def _randomness(runner: Runner) -> dict[str, Any]:
    return getattr(runner, '_randomness_cfg', None) or {}


@contextlib.contextmanager
def averaged_weights(runner: Runner) -> Iterator[None]:
    """Use the averaged weights of ``EMAHook`` inside a ``with`` block.

    mmengine swaps them for its val loop only. Does nothing without the hook, or before it has started.
    """
    averages = [hook for hook in runner.hooks if isinstance(hook, EMAHook) and hook._ema_started(runner)]
    for hook in averages:
        hook._swap_ema_parameters()
    try:
        yield
    finally:
        for hook in averages:
            hook._swap_ema_parameters()
