"""Randomness of a training step as a function of where the training is."""

from __future__ import annotations

from mmengine.dist import get_rank
from mmengine.hooks import Hook
from mmengine.runner import Runner

from ...integration.runner import run_seed
from ...registry import HOOKS
from ...utils.randomness import seed_step


@HOOKS.register_module()
class StepSeedHook(Hook):
    """Seed dropout and all else that a step draws by the seed, the iteration and the rank.

    For mmengine's own training loops: one that is resumed at the start of an epoch then goes on bit for bit as if it
    had not been stopped, unless transforms of images are random, which workers draw.
    """

    priority = 'VERY_LOW'  # what other hooks draw is not a step's

    def before_train_iter(self, runner: Runner, batch_idx: int, data_batch: dict | None = None) -> None:
        """Seed the generators of Python, numpy and torch."""
        seed_step(run_seed(runner), runner.iter, get_rank(), 1)
