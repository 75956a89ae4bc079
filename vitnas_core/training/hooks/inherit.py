"""Starting a supernet from the weights of one of another space."""

from __future__ import annotations

from mmengine.hooks import Hook
from mmengine.runner import Runner

from ...backbones import elastic_backbone, unwrap
from ...checkpoints import load_overlap
from ...errors import VitnasError
from ...registry import HOOKS


@HOOKS.register_module()
class InheritHook(Hook):
    """Load the weights that overlap with another supernet's before the first step; a resumed training has its own.

    Args:
        checkpoint: The other supernet.

    Raises:
        VitnasError: Architectures do not share the first channels, which are what overlaps.
    """

    def __init__(self, checkpoint: str) -> None:
        self.checkpoint = checkpoint

    def before_train(self, runner: Runner) -> None:
        """Load them, unless the training goes on from a checkpoint."""
        pattern = elastic_backbone(runner.model).pattern.name
        if pattern != 'ordinal':
            raise VitnasError(
                f'weights of another space overlap with ordinal sharing only, but got sharing={pattern!r}'
            )
        if runner.iter == 0:
            share = load_overlap(unwrap(runner.model), self.checkpoint)
            runner.logger.info(f'{share:.0%} of the weights begin as those of {self.checkpoint}')
