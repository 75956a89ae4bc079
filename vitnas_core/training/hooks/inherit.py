"""Starting a supernet from the weights of one of another space."""

from __future__ import annotations

from mmengine.hooks import Hook
from mmengine.runner import Runner

from ...backbones import unwrap
from ...checkpoints import load_overlap
from ...registry import HOOKS


@HOOKS.register_module()
class InheritHook(Hook):
    """Load the weights that overlap with another supernet's before the first step; a resumed training has its own.

    Args:
        checkpoint: The other supernet.
    """

    def __init__(self, checkpoint: str) -> None:
        self.checkpoint = checkpoint

    def before_train(self, runner: Runner) -> None:
        """Load them, unless the training goes on from a checkpoint."""
        if runner.iter == 0:
            share = load_overlap(unwrap(runner.model), self.checkpoint)
            runner.logger.info(f'{share:.0%} of the weights begin as those of {self.checkpoint}')
