"""Make the randomness of a training step depend only on the seed and the step."""

from __future__ import annotations

from mmengine.dist import get_rank
from mmengine.hooks import Hook
from mmengine.runner import Runner

from ...integration.runner import run_seed
from ...registry import HOOKS
from ...utils.randomness import seed_step


@HOOKS.register_module()
class StepSeedHook(Hook):
    """Seed all that a step draws, e.g. dropout, by the seed, the iteration and the rank.

    For mmengine's own training loops. A training that is resumed at the start of an epoch then goes on bit for bit,
    unless image transforms are random: workers draw those.
    """

    priority = 'VERY_LOW'  # after other hooks, whose draws do not belong to the step

    def before_train_iter(self, runner: Runner, batch_idx: int, data_batch: dict | None = None) -> None:
        """Seed the generators of Python, numpy and torch."""
        seed_step(run_seed(runner), runner.iter, get_rank(), 1)
